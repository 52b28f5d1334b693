#include "ops/reference.h"
#include "base/parallel.h"
#include "ops/experts/slots.h"
#include "ops/scaled_experts/scaled_experts.h"
#include "ops/scaled_linear/numbers.h"
#include "quantize/quantizer.h"

namespace strata::reference {
namespace {

constexpr int64_t kGroup = 128;  // pairs that a weight gradient quantises together

// From rows of tokens to rows of pairs. weight(e, c, d): element d that column c of a result takes of expert e's matrix.
template <typename Op, typename Weight>
void to_slots(const Arrays<Op>& at, const NumbersOf& rows, const Array& out, const Weight& weight) {
  const Slots slots(at.in.ids, at.in.offsets);
  const int64_t columns = out.shape[1];
  parallel_for(slots.ids.shape.elements(), [&](int64_t slot) {
    const bool used = slot < std::ssize(slots.token_of) && slots.expert(slot) >= 0;
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t d = 0; used && d < rows.depth(); ++d)
        sum += rows.at(slots.token_of[static_cast<size_t>(slot)], d) * weight(slots.expert(slot), c, d);
      out.put(slot * columns + c, sum);
    }
  });
}

// From rows of pairs to rows of tokens.
template <typename Op, typename Weight>
void to_tokens(const Arrays<Op>& at, const NumbersOf& rows, const Array& out, const Weight& weight) {
  const Slots slots(at.in.ids, at.in.offsets);
  const int64_t columns = out.shape[1];
  parallel_for(slots.tokens(), [&](int64_t token) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t slot = slots.begin(token); slot < slots.begin(token + 1); ++slot) {
        if (slots.expert(slot) < 0) continue;
        for (int64_t d = 0; d < rows.depth(); ++d) sum += rows.at(slot, d) * weight(slots.expert(slot), c, d);
      }
      out.put(token * columns + c, sum);
    }
  });
}

template <typename Op>
void scaled_product(const Arrays<Op>& at, bool from_tokens) {
  const NumbersOf x(at.attrs.first, at.in.x, at.in.x_scales, at.in.x_greatest),
      w(at.attrs.second, at.in.weight, at.in.weight_scales, at.in.weight_greatest);
  const int64_t outputs = w.count() / at.attrs.experts;
  const auto weight = [&](int64_t e, int64_t c, int64_t d) { return w.at(e * outputs + c, d); };
  from_tokens ? to_slots(at, x, at.out.y, weight) : to_tokens(at, x, at.out.y, weight);
}

template <typename Op>
void scaled_grad_input(const Arrays<Op>& at, bool from_tokens) {
  const NumbersOf dy(at.attrs.first, at.in.dy, at.in.dy_scales, at.in.dy_greatest),
      w(at.attrs.second, at.in.weight, at.in.weight_scales, at.in.weight_greatest);
  const int64_t outputs = w.depth() / at.attrs.experts;
  const auto weight = [&](int64_t e, int64_t c, int64_t d) { return w.at(c, e * outputs + d); };
  from_tokens ? to_slots(at, dy, at.out.dx, weight) : to_tokens(at, dy, at.out.dx, weight);
}

// How groups are rounded: `places` and `held` with stochastic rounding.
struct GroupRounding {
  quantize::Treatment treatment;
  const Array* places = nullptr;
  ops::HeldColumns held = {};
};

// Rows of an operand, quantised again along them, group by group.
std::vector<double> regrouped(const NumbersOf& numbers, const std::vector<int64_t>& rows,
                              const GroupRounding& rounding) {
  const quantize::ScaleRule& rule = rounding.treatment.rule;
  std::vector<double> all;
  const int64_t columns = numbers.depth();
  for (int64_t first = 0; first < std::ssize(rows); first += kGroup) {
    const int64_t count = std::min(kGroup, std::ssize(rows) - first);
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        values.push_back(static_cast<float>(numbers.at(rows[static_cast<size_t>(first + i)], j)));
    }
    const auto layout = quantize::layout_of(rule, columns, count);
    std::vector<std::byte> codes(static_cast<size_t>(layout.code_bytes())),
        scales(static_cast<size_t>(layout.scale_bytes()));
    std::vector<float> greatest(static_cast<size_t>(layout.greatest)),
        found(static_cast<size_t>(columns * count));
    std::vector<int32_t> places;
    for (int64_t i = 0; rounding.treatment.stochastic && i < 2 * count; ++i)
      places.push_back(static_cast<int32_t>(
          rounding.places->index_at(2 * rows[static_cast<size_t>(first + i / 2)] + i % 2)));
    const quantize::Source source{.data = values.data(),
                                  .rows = count,
                                  .columns = columns,
                                  .stride = columns,
                                  .pitch = rounding.held.all,
                                  .places = places.empty() ? nullptr : places.data(),
                                  .runs = rounding.held.runs};
    if (!greatest.empty())
      quantize::find_greatest(source, rounding.treatment, quantize::Along::kColumns, greatest.data());
    quantize::quantize(source, std::nullopt,
                       quantize::Request{rounding.treatment, {codes.data(), scales.data()}, greatest.data()});
    quantize::dequantize(rule, columns, count, codes.data(), scales.data(), greatest.data(), found.data(),
                         count);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < columns; ++j) all.push_back(found[static_cast<size_t>(j * count + i)]);
    }
  }
  return all;
}

// `dy_by_slot`: dy has one row per pair and x one per token; otherwise the other way round.
template <typename Op>
void scaled_grad_weight(const Arrays<Op>& at, bool dy_by_slot) {
  const NumbersOf dy(at.attrs.first, at.in.dy, at.in.dy_scales, at.in.dy_greatest),
      x(at.attrs.second, at.in.x, at.in.x_scales, at.in.x_greatest);
  const ops::QuantizeAttrs& pairs = at.attrs.pair_rounding;
  GroupRounding of_dy{{*at.attrs.first_along_pairs}}, of_x{{*at.attrs.second_along_pairs}};
  if (pairs.transforms_columns) of_dy.treatment.hadamard = of_x.treatment.hadamard = ops::hadamard_signs();
  if (pairs.stochastic) {
    const int64_t ranks = pairs.columns ? pairs.columns->ranks : 1;
    of_dy.treatment.stochastic = ops::stochastic_bits(pairs, true);
    of_dy.places = &at.in.places;
    of_dy.held =
        ops::held_columns(pairs, dy.depth(), ranks > 1 ? place_in(at.in.rank, pairs.axis, ranks) : 0);
  }
  const Slots slots(at.in.ids, at.in.offsets);
  const int64_t outputs = dy.depth(), inputs = x.depth();
  for (int64_t expert = 0; expert < at.attrs.experts; ++expert) {
    std::vector<int64_t> dy_rows, x_rows;
    for (int64_t slot = 0; slot < std::ssize(slots.token_of); ++slot) {
      if (slots.expert(slot) != expert) continue;
      const int64_t token = slots.token_of[static_cast<size_t>(slot)];
      dy_rows.push_back(dy_by_slot ? slot : token);
      x_rows.push_back(dy_by_slot ? token : slot);
    }
    const std::vector<double> a = regrouped(dy, dy_rows, of_dy), b = regrouped(x, x_rows, of_x);
    parallel_for(outputs, [&](int64_t o) {
      for (int64_t i = 0; i < inputs; ++i) {
        double sum = 0;
        for (int64_t pair = 0; pair < std::ssize(dy_rows); ++pair)
          sum += a[static_cast<size_t>(pair * outputs + o)] * b[static_cast<size_t>(pair * inputs + i)];
        at.out.dw.give((expert * outputs + o) * inputs + i, sum);
      }
    });
  }
}

}  // namespace

template <>
void compute(const Arrays<ops::ScaledExpertsIn>& at) {
  scaled_product(at, true);
}
template <>
void compute(const Arrays<ops::ScaledExpertsInGradInput>& at) {
  scaled_grad_input(at, false);
}
template <>
void compute(const Arrays<ops::ScaledExpertsInGradWeight>& at) {
  scaled_grad_weight(at, true);
}
template <>
void compute(const Arrays<ops::ScaledExpertsOut>& at) {
  scaled_product(at, false);
}
template <>
void compute(const Arrays<ops::ScaledExpertsOutGradInput>& at) {
  scaled_grad_input(at, true);
}
template <>
void compute(const Arrays<ops::ScaledExpertsOutGradWeight>& at) {
  scaled_grad_weight(at, false);
}

}  // namespace strata::reference
