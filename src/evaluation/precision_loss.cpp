#include "evaluation/precision_loss.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "evaluation/precision_products.h"
#include "quantize/quantizer.h"

namespace strata::evaluation {
namespace {

using graph::kNone;
using graph::Node;
using graph::ValueId;

Matrix transposed(const Matrix& x) {
  Matrix out{x.columns, x.rows, std::vector<float>(x.values.size())};
  parallel_for(out.rows, [&](int64_t i) {
    for (int64_t j = 0; j < out.columns; ++j)
      out.values[static_cast<size_t>(i * out.columns + j)] = x.at(j, i);
  });
  return out;
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> out(bytes.size() / static_cast<size_t>(size_of(dtype)));
  convert(out.data(), DType::kF32, bytes.data(), dtype, std::ssize(out));
  return out;
}

// Sums over the rows of a matrix.
struct RowSums {
  double signal = 0, noise = 0;
  int64_t saturated = 0, flushed = 0;
};

// `source`: the numbers before rounding; codes and scales are laid out likewise.
RowSums sums_of(const Matrix& source, const quantize::ScaleRule& rule, const std::vector<std::byte>& codes,
                const std::vector<std::byte>& scales, const float* greatest) {
  std::vector<float> decoded(source.values.size());
  quantize::dequantize(rule, source.rows, source.columns, codes.data(), scales.data(), greatest,
                       decoded.data(), source.columns);
  const quantize::Format format = rule.format();
  const quantize::FormatSpec spec = quantize::spec_of(format);
  const auto& values = quantize::values_of(format);
  const float largest = quantize::largest_of(format);
  // Half the distance of the two largest numbers is lost by rounding to nearest.
  const double bound =
      1.5 * static_cast<double>(largest) - 0.5 * static_cast<double>(values[spec.greatest - 1]);
  const int64_t pitch = quantize::layout_of(rule, source.rows, source.columns).code_row_bytes;
  std::vector<RowSums> rows(static_cast<size_t>(source.rows));
  parallel_for(source.rows, [&](int64_t i) {
    RowSums& sums = rows[static_cast<size_t>(i)];
    for (int64_t j = 0; j < source.columns; ++j) {
      const double x = source.at(i, j);
      const double y = decoded[static_cast<size_t>(i * source.columns + j)];
      sums.signal += x * x;
      sums.noise += (x - y) * (x - y);
      const int64_t byte = i * pitch + (spec.bits() == 4 ? j / 2 : j);
      uint32_t code = std::to_integer<uint32_t>(codes[static_cast<size_t>(byte)]);
      if (spec.bits() == 4) code = j % 2 == 0 ? code & 15 : code >> 4;
      const float magnitude = std::abs(values[code]);
      sums.flushed += magnitude == 0 && x != 0 ? 1 : 0;
      const double scale = std::abs(y) / static_cast<double>(largest);
      sums.saturated += magnitude == largest && std::abs(x) > bound * scale ? 1 : 0;
    }
  });
  RowSums all;
  for (const RowSums& row : rows) {
    all.signal += row.signal;
    all.noise += row.noise;
    all.saturated += row.saturated;
    all.flushed += row.flushed;
  }
  return all;
}

class PrecisionObserver final : public program::Executor::Observer {
 public:
  PrecisionObserver(program::Executor& executor, size_t index, const PrecisionOptions& options)
      : executor_(executor),
        index_(index),
        options_(options),
        program_(executor.program(index)),
        graph_(program_.graph),
        recipe_(executor.set().options.precision->recipe) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i)
      if (graph_.nodes()[i].op == &ops::Quantize::def) find_codes(graph_.nodes()[i], i);
    for (const Node& node : graph_.nodes()) {
      const auto product = product_of(node);
      if (!product) continue;
      ++products_;
      for (const OperandAt& operand : product->operands) ++uses_[codes_of(node, operand).node];
    }
    for (const graph::Parameter& parameter : graph_.parameters())
      if (parameter.gradient != kNone) parameter_of_.insert({parameter.gradient, parameter.value});
    previous_ = executor.observe(this);
  }
  ~PrecisionObserver() override { executor_.observe(previous_); }
  PrecisionObserver(const PrecisionObserver&) = delete;
  PrecisionObserver& operator=(const PrecisionObserver&) = delete;

  bool wants_results() const override { return true; }

  void instruction(size_t index, const program::Action& action, size_t at, double, double) override {
    if (index != index_) return;
    const Seen seen{action, program_.list_of(action)[at]};
    const auto node = static_cast<size_t>(seen.instruction.node);
    if (graph_.nodes()[node].op == &ops::Quantize::def) keep_source(seen, node);
    if (const auto product = product_of(graph_.nodes()[node])) measure(seen, *product);
  }

  std::vector<ProductLoss> found() { return std::move(found_); }

 private:
  // An instruction that has just run.
  struct Seen {
    const program::Action& action;
    const program::Instruction& instruction;
  };
  const Node& node_of(const Seen& seen) const { return program_.node_of(seen.instruction); }

  // Where codes were made.
  struct Codes {
    size_t node = 0;  // quantize
    bool along_columns = false;
  };
  void find_codes(const Node& node, size_t place) {
    const auto out = graph::outputs_of<ops::Quantize>(node);
    if (out.row_codes != kNone) codes_.insert({out.row_codes, {place, false}});
    if (out.column_codes != kNone) codes_.insert({out.column_codes, {place, true}});
  }
  const Codes& codes_of(const Node& product, const OperandAt& operand) const {
    const auto found = codes_.find(product.inputs[static_cast<size_t>(operand.codes)]);
    STRATA_CHECK(found != codes_.end(), "nothing quantises operand {} of {}", operand.codes,
                 product.op->name);
    return found->second;
  }

  std::vector<std::byte> read(const Seen& seen, int operand, int64_t bytes, int64_t offset = 0) const {
    std::vector<std::byte> out(static_cast<size_t>(bytes));
    executor_.download_operand(index_, seen.action, seen.instruction, static_cast<size_t>(operand),
                               out.data(), bytes, offset);
    return out;
  }
  std::vector<std::byte> read_input(const Seen& seen, int input) const {
    return read(seen, input, graph_.value(node_of(seen).inputs[static_cast<size_t>(input)]).bytes());
  }

  // Activations and their gradients are gone when backward reads their codes. Parameters stay until the update.
  void keep_source(const Seen& seen, size_t node) {
    const ValueId x = graph::inputs_of<ops::Quantize>(node_of(seen)).x;
    if (graph::is_temporary(graph_.value(x).role) && uses_.contains(node)) kept_[node] = read_input(seen, 0);
  }
  Matrix source_of(size_t node) const {
    const ValueId x = graph::inputs_of<ops::Quantize>(graph_.nodes()[node]).x;
    const graph::Value& value = graph_.value(x);
    std::vector<std::byte> bytes;
    if (const auto found = kept_.find(node); found != kept_.end()) {
      bytes = found->second;
    } else {
      bytes.resize(static_cast<size_t>(value.bytes()));
      executor_.download(index_, x, bytes.data(), value.bytes());
    }
    return {value.shape[0], value.shape[1], floats_of(bytes, value.dtype)};
  }

  OperandLoss operand_loss(const Seen& seen, const OperandAt& operand, const Matrix& source) {
    const Node& product = node_of(seen);
    const ValueId id = product.inputs[static_cast<size_t>(operand.codes)];
    if (const auto found = operands_.find(id); found != operands_.end()) return found->second;
    const Codes& made = codes_of(product, operand);
    const Node& quantize = graph_.nodes()[made.node];
    Matrix laid_out = made.along_columns ? transposed(source) : source;
    if (made.along_columns && quantize.attrs.as<ops::QuantizeAttrs>().transforms_columns) {
      parallel_for(laid_out.rows, [&](int64_t i) {
        for (int64_t j = 0; j + quantize::kHadamard <= laid_out.columns; j += quantize::kHadamard)
          quantize::hadamard_16(laid_out.values.data() + i * laid_out.columns + j, 1, ops::hadamard_signs());
      });
    }
    const quantize::ScaleRule& rule = operand.attrs.rule;
    const auto layout = quantize::layout_of(rule, laid_out.rows, laid_out.columns);
    std::vector<float> greatest;
    if (operand.greatest != kNone) greatest = floats_of(read_input(seen, operand.greatest), DType::kF32);
    const RowSums sums = sums_of(laid_out, rule, read(seen, operand.codes, layout.code_bytes()),
                                 read(seen, operand.scales, layout.scale_bytes()),
                                 greatest.empty() ? nullptr : greatest.data());
    const auto elements = static_cast<double>(std::max<size_t>(1, source.values.size()));
    OperandLoss loss{.tensor = graph_.value(graph::inputs_of<ops::Quantize>(quantize).x).name,
                     .format = std::string(quantize::spec_of(rule.format()).name),
                     .rule = rule.str(),
                     .snr_db = decibels(sums.signal, sums.noise),
                     .saturated = static_cast<double>(sums.saturated) / elements,
                     .flushed = static_cast<double>(sums.flushed) / elements};
    return operands_.insert({id, std::move(loss)}).first->second;
  }

  void measure(const Seen& seen, const Product& product) {
    const Node& node = node_of(seen);
    const graph::Value& result = graph_.value(node.outputs.front());
    std::array<Matrix, 2> sources;
    ProductLoss loss{.op = std::string(node.op->name),
                     .layer = node.layer,
                     .role = product.role,
                     .gate_db = gate_of(recipe_, product.role),
                     .rows = result.shape[0]};
    for (size_t o = 0; o < 2; ++o) {
      const OperandAt& operand = product.operands[o];
      sources[o] = source_of(codes_of(node, operand).node);
      loss.operands[o] = operand_loss(seen, operand, sources[o]);
    }
    loss.weight = product.role == ProductRole::kWeightGrad ? weight_of_gradient(node.outputs.front())
                                                           : loss.operands[1].tensor;
    const ExactRows exact = exact_rows(product, sources, ids_of(seen, product), result.shape[0],
                                       result.shape[1], options_.multiplications);
    loss.rows_compared = std::ssize(exact.rows);
    loss.snr_db = result_snr(seen, product, exact);
    found_.push_back(std::move(loss));
    for (const OperandAt& operand : product.operands) {
      const size_t made = codes_of(node, operand).node;
      if (--uses_[made] == 0) kept_.erase(made);
    }
    if (options_.progress)
      options_.progress(static_cast<double>(found_.size()) / static_cast<double>(products_));
  }

  std::vector<int32_t> ids_of(const Seen& seen, const Product& product) const {
    if (!product.experts) return {};
    const std::vector<std::byte> bytes = read_input(seen, product.experts->ids);
    std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
    std::memcpy(ids.data(), bytes.data(), bytes.size());
    return ids;
  }

  double result_snr(const Seen& seen, const Product& product, const ExactRows& exact) const {
    const Node& node = node_of(seen);
    const graph::Value& result = graph_.value(node.outputs.front());
    const int64_t columns = result.shape[1], row_bytes = columns * size_of(result.dtype);
    // The first micro-batch overwrites gradients, and no two matmuls share a weight.
    STRATA_CHECK(seen.instruction.adds == 0, "{} adds to {}", node.op->name, result.name);
    std::vector<float> bias(static_cast<size_t>(columns));
    if (product.bias != kNone) bias = floats_of(read_input(seen, product.bias), DType::kF32);
    double signal = 0, noise = 0;
    const auto output = static_cast<int>(node.inputs.size());
    for (int64_t i = 0; i < std::ssize(exact.rows); ++i) {
      const auto bytes = read(seen, output, row_bytes, exact.rows[static_cast<size_t>(i)] * row_bytes);
      const auto row = floats_of(bytes, result.dtype);
      for (size_t j = 0; j < row.size(); ++j) {
        const double want = exact.values[static_cast<size_t>(i * columns) + j];
        const double got = static_cast<double>(row[j]) - static_cast<double>(bias[j]);
        signal += want * want;
        noise += (want - got) * (want - got);
      }
    }
    return decibels(signal, noise);
  }

  std::string weight_of_gradient(ValueId gradient) const {
    const auto found = parameter_of_.find(gradient);
    return graph_.value(found == parameter_of_.end() ? gradient : found->second).name;
  }

  program::Executor& executor_;
  const size_t index_;
  const PrecisionOptions& options_;
  const program::Program& program_;
  const graph::Graph& graph_;
  const quantize::Recipe& recipe_;
  program::Executor::Observer* previous_ = nullptr;
  std::unordered_map<ValueId, Codes> codes_;
  std::unordered_map<size_t, int64_t> uses_;                 // matmuls to come, by quantize node
  std::unordered_map<size_t, std::vector<std::byte>> kept_;  // sources, by quantize node
  std::unordered_map<ValueId, ValueId> parameter_of_;        // by gradient
  std::unordered_map<ValueId, OperandLoss> operands_;        // by codes
  int64_t products_ = 0;
  std::vector<ProductLoss> found_;
};

}  // namespace

std::string_view name_of(ProductRole role) {
  switch (role) {
    case ProductRole::kForward:
      return "forward";
    case ProductRole::kInputGrad:
      return "input_grad";
    case ProductRole::kWeightGrad:
      return "weight_grad";
  }
  return {};
}

double decibels(double signal, double noise) {
  if (!std::isfinite(signal) || !std::isfinite(noise)) return -kMostDecibels;
  if (noise == 0) return kMostDecibels;
  return std::clamp(10 * std::log10(signal / noise), -kMostDecibels, kMostDecibels);
}

double gate_of(const quantize::Recipe& recipe, ProductRole role) {
  if (quantize::spec_of(recipe.input.along_rows.format()).bits() == 4) return 10;
  return role == ProductRole::kForward ? 18 : 17;
}

std::vector<ProductLoss> measure_precision(program::Executor& executor, size_t index,
                                           const PrecisionOptions& options) {
  STRATA_CHECK(executor.set().options.precision != nullptr && executor.set().options.mesh.ranks() == 1,
               "expected programs of one rank with a recipe");
  PrecisionObserver observer(executor, index, options);
  const program::Script& script = executor.program(index).script;
  for (size_t at = 0; at < script.size(); ++at) {
    if (is_of_micro_batch(script[at].segment) && script[at].micro_batch == 0)
      executor.run_in_script(index, at);
  }
  return observer.found();
}

}  // namespace strata::evaluation
