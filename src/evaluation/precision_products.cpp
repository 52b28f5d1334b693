#include "evaluation/precision_products.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/reference/products.h"
#include "ops/scaled_experts/scaled_experts.h"

namespace strata::evaluation {
namespace {

using graph::kNone;
using graph::Node;

// Operand NAME of an op has its scales in NAME_scales and its greatest magnitude in NAME_greatest.
template <typename Op, typename Attrs>
Product made_of(const Node& node, ProductRole role, const std::string& first, const std::string& second) {
  const auto& attrs = node.attrs.as<Attrs>();
  const auto operand = [&](const ops::ScaledOperandAttrs& of, const std::string& name) {
    const auto place = [](const std::string& input) { return graph::position_of<Op::template In>(input); };
    OperandAt at{of, place(name), place(name + "_scales"), place(name + "_greatest")};
    if (node.inputs[static_cast<size_t>(at.greatest)] == kNone) at.greatest = kNone;
    return at;
  };
  return {role, {operand(attrs.first, first), operand(attrs.second, second)}};
}

// nullopt for a node of another op.
template <typename Op>
std::optional<Product> linear(const Node& node, ProductRole role, const std::string& first,
                              const std::string& second) {
  if (node.op != &Op::def) return std::nullopt;
  return made_of<Op, ops::ScaledAttrs>(node, role, first, second);
}
template <typename Op>
std::optional<Product> experts(const Node& node, ProductRole role, const std::string& first,
                               const std::string& second, bool from_tokens) {
  if (node.op != &Op::def) return std::nullopt;
  STRATA_CHECK(node.inputs[static_cast<size_t>(graph::position_of<Op::template In>("offsets"))] == kNone,
               "{} has tokens of other ranks", node.op->name);
  Product made = made_of<Op, ops::ScaledExpertsAttrs>(node, role, first, second);
  made.experts = ExpertsAt{.experts = node.attrs.as<ops::ScaledExpertsAttrs>().experts,
                           .ids = graph::position_of<Op::template In>("ids"),
                           .from_tokens = from_tokens};
  return made;
}

std::vector<int64_t> evenly_spaced(int64_t all, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * all / count);
  return out;
}

// The elements of the operands that a matmul multiplies: Σ over d of first(row, d) · second(column, d).
double first_at(const Product& product, const Matrix& source, int64_t row, int64_t d) {
  return static_cast<double>(product.role == ProductRole::kWeightGrad ? source.at(d, row)
                                                                      : source.at(row, d));
}
double second_at(const Product& product, const Matrix& source, int64_t column, int64_t d) {
  return static_cast<double>(product.role == ProductRole::kForward ? source.at(column, d)
                                                                   : source.at(d, column));
}

ExactRows rows_of_linear(const Product& product, const std::array<Matrix, 2>& sources, int64_t rows,
                         int64_t columns, int64_t multiplications) {
  const int64_t depth = product.role == ProductRole::kWeightGrad ? sources[0].rows : sources[0].columns;
  const int64_t affordable = multiplications / std::max<int64_t>(1, columns * depth);
  ExactRows exact{evenly_spaced(rows, std::min(rows, std::max<int64_t>(64, affordable))), {}};
  const auto count = std::ssize(exact.rows);
  exact.values.resize(static_cast<size_t>(count * columns));
  reference::products(
      count, columns, depth,
      [&](int64_t i, int64_t d) {
        return first_at(product, sources[0], exact.rows[static_cast<size_t>(i)], d);
      },
      [&](int64_t j, int64_t d) { return second_at(product, sources[1], j, d); },
      [&](int64_t i, int64_t j, double sum) { exact.values[static_cast<size_t>(i * columns + j)] = sum; });
  return exact;
}

// The part of a matmul of experts that one expert has: rows of ExactRows, by position, and the rows of operands in them.
struct Part {
  std::vector<int64_t> results, firsts, seconds;
};

// Multiplies an expert's part, and adds the result to its rows.
template <typename First, typename Second>
void add_part(const Part& part, int64_t columns, int64_t depth, const First& first, const Second& second,
              ExactRows& exact) {
  const auto count = std::ssize(part.results);
  std::vector<double> sums(static_cast<size_t>(count * columns));
  reference::products(count, columns, depth, first, second, [&](int64_t i, int64_t j, double sum) {
    sums[static_cast<size_t>(i * columns + j)] = sum;
  });
  // One by one: hashes may send a token to an expert twice.
  for (int64_t i = 0; i < count; ++i) {
    double* const row = exact.values.data() + part.results[static_cast<size_t>(i)] * columns;
    for (int64_t j = 0; j < columns; ++j) row[j] += sums[static_cast<size_t>(i * columns + j)];
  }
}

// Outputs and input gradients: rows of tokens that become rows of pairs, or the other way round.
ExactRows rows_by_token(const Product& product, const std::array<Matrix, 2>& sources,
                        const std::vector<int32_t>& ids, int64_t rows, int64_t columns,
                        int64_t multiplications) {
  const bool from_tokens = product.experts->from_tokens;
  const int64_t pairs = std::ssize(ids), tokens = from_tokens ? sources[0].rows : rows;
  const int64_t k = pairs / tokens, depth = sources[0].columns;
  const int64_t affordable = multiplications / std::max<int64_t>(1, k * columns * depth);
  const auto chosen = evenly_spaced(tokens, std::min(tokens, std::max<int64_t>(64, affordable)));
  ExactRows exact;
  std::vector<Part> parts(static_cast<size_t>(product.experts->experts));
  for (const int64_t token : chosen) {
    if (!from_tokens) exact.rows.push_back(token);
    for (int64_t pair = token * k; pair < (token + 1) * k; ++pair) {
      if (from_tokens) exact.rows.push_back(pair);
      const int32_t expert = ids[static_cast<size_t>(pair)];
      if (expert < 0) continue;
      Part& part = parts[static_cast<size_t>(expert)];
      part.results.push_back(std::ssize(exact.rows) - 1);
      part.firsts.push_back(from_tokens ? token : pair);
    }
  }
  exact.values.resize(exact.rows.size() * static_cast<size_t>(columns));
  const int64_t outputs = sources[1].rows / product.experts->experts;
  for (size_t expert = 0; expert < parts.size(); ++expert) {
    const int64_t weight = static_cast<int64_t>(expert) * outputs;
    add_part(
        parts[expert], columns, depth,
        [&](int64_t i, int64_t d) {
          return static_cast<double>(sources[0].at(parts[expert].firsts[static_cast<size_t>(i)], d));
        },
        [&](int64_t j, int64_t d) {
          return static_cast<double>(product.role == ProductRole::kForward ? sources[1].at(weight + j, d)
                                                                           : sources[1].at(weight + d, j));
        },
        exact);
  }
  return exact;
}

// Weight gradients: sums over the pairs of an expert.
ExactRows rows_by_expert(const Product& product, const std::array<Matrix, 2>& sources,
                         const std::vector<int32_t>& ids, int64_t rows, int64_t columns,
                         int64_t multiplications) {
  const bool from_tokens = product.experts->from_tokens;
  const int64_t pairs = std::ssize(ids), experts = product.experts->experts;
  const int64_t k = pairs / (from_tokens ? sources[0].rows : sources[1].rows), outputs = rows / experts;
  const int64_t affordable = multiplications / std::max<int64_t>(1, columns * (pairs / experts));
  ExactRows exact{evenly_spaced(rows, std::min(rows, std::max<int64_t>(64, affordable))), {}};
  exact.values.resize(exact.rows.size() * static_cast<size_t>(columns));
  std::vector<Part> parts(static_cast<size_t>(experts));
  for (size_t i = 0; i < exact.rows.size(); ++i)
    parts[static_cast<size_t>(exact.rows[i] / outputs)].results.push_back(static_cast<int64_t>(i));
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const int32_t expert = ids[static_cast<size_t>(pair)];
    if (expert < 0) continue;
    Part& part = parts[static_cast<size_t>(expert)];
    part.firsts.push_back(from_tokens ? pair / k : pair);
    part.seconds.push_back(from_tokens ? pair : pair / k);
  }
  for (const Part& part : parts) {
    add_part(
        part, columns, std::ssize(part.firsts),
        [&](int64_t i, int64_t d) {
          const int64_t row = exact.rows[static_cast<size_t>(part.results[static_cast<size_t>(i)])];
          return static_cast<double>(sources[0].at(part.firsts[static_cast<size_t>(d)], row % outputs));
        },
        [&](int64_t j, int64_t d) {
          return static_cast<double>(sources[1].at(part.seconds[static_cast<size_t>(d)], j));
        },
        exact);
  }
  return exact;
}

}  // namespace

std::optional<Product> product_of(const Node& node) {
  using enum ProductRole;
  if (node.phase == graph::Phase::kRecompute) return std::nullopt;
  if (auto made = linear<ops::ScaledLinear>(node, kForward, "x", "weight")) {
    const int bias = graph::position_of<ops::ScaledLinear::In>("bias");
    if (node.inputs[static_cast<size_t>(bias)] != kNone) made->bias = bias;
    return made;
  }
  if (auto made = linear<ops::ScaledLinearGradInput>(node, kInputGrad, "dy", "weight")) return made;
  if (auto made = linear<ops::ScaledLinearGradWeight>(node, kWeightGrad, "dy", "x")) return made;
  if (auto made = experts<ops::ScaledExpertsIn>(node, kForward, "x", "weight", true)) return made;
  if (auto made = experts<ops::ScaledExpertsOut>(node, kForward, "x", "weight", false)) return made;
  if (auto made = experts<ops::ScaledExpertsInGradInput>(node, kInputGrad, "dy", "weight", false))
    return made;
  if (auto made = experts<ops::ScaledExpertsOutGradInput>(node, kInputGrad, "dy", "weight", true))
    return made;
  if (auto made = experts<ops::ScaledExpertsInGradWeight>(node, kWeightGrad, "dy", "x", false)) return made;
  return experts<ops::ScaledExpertsOutGradWeight>(node, kWeightGrad, "dy", "x", true);
}

ExactRows exact_rows(const Product& product, const std::array<Matrix, 2>& sources,
                     const std::vector<int32_t>& ids, int64_t rows, int64_t columns,
                     int64_t multiplications) {
  if (!product.experts) return rows_of_linear(product, sources, rows, columns, multiplications);
  return product.role == ProductRole::kWeightGrad
             ? rows_by_expert(product, sources, ids, rows, columns, multiplications)
             : rows_by_token(product, sources, ids, rows, columns, multiplications);
}

}  // namespace strata::evaluation
