#include "ops/case_codes.h"
#include "ops/case_experts.h"
#include "ops/scaled_experts/scaled_experts.h"

namespace strata::device {

using namespace op_rows;
using ops::ScaledExpertsAttrs;
using quantize::Format;
using quantize::ScaleRule;

namespace {

// Rules of a recipe, and the sizes at which they are computed.
struct CodedExperts {
  std::string name;  // follows that of the op
  ScaleRule activations, weights;
  bool copies_weights;  // input gradients read a copy along columns
  std::vector<ExpertSizes> sizes;

  ScaledExpertsAttrs product(int64_t experts) const { return {{experts}, {activations}, {weights}}; }
  ScaledExpertsAttrs grad_input(int64_t experts) const {
    return {{experts}, {activations}, {weights, !copies_weights}};
  }
  ScaledExpertsAttrs grad_weight(int64_t experts) const {
    ScaledExpertsAttrs attrs{{experts}, {activations}, {activations}, activations, activations};
    if (activations.is_nvfp4_by_row())
      attrs.pair_rounding = {.transforms_columns = true, .stochastic = true, .stream = 5};
    return attrs;
  }
};

const ScaleRule kExpertBlock = ScaleRule::block_row(Format::kE4M3),
                kExpertSquare = ScaleRule::block_square(Format::kE4M3),
                kExpertMx = ScaleRule::mx(Format::kE4M3), kExpertRow = ScaleRule::row(Format::kE4M3),
                kExpertTensor = ScaleRule::tensor(Format::kE4M3);

std::vector<CodedExperts> coded_experts() {
  const std::vector<ExpertSizes> any = expert_sizes();
  // Cuts in four leave whole blocks; then sizes that no block divides. One expert of the last has more pairs than a
  // weight gradient quantises together.
  const ExpertSizes blocks{"", 4, 2, 2, 512, 512, 4, false}, ragged{"_ragged", 11, 3, 5, 131, 77, 11, true};
  const ExpertSizes mx{"", 8, 2, 4, 128, 128, 8, false}, groups{"_of_groups", 150, 2, 3, 33, 20, 150, true};
  const ExpertSizes nvfp4{"", 8, 2, 4, 64, 64, 8, false},
      even_groups{"_ragged", 150, 2, 3, 34, 22, 150, true};
  return {{"row", kExpertRow, kExpertRow, true, any},
          {"tensor", kExpertRow, kExpertTensor, false, {any.front(), groups}},
          {"block", kExpertBlock, kExpertSquare, false, {blocks, ragged}},
          {"mx", kExpertMx, kExpertMx, true, {mx, ragged}},
          {"nvfp4", ScaleRule::nvfp4_by_row(), ScaleRule::nvfp4_square(), false, {nvfp4, even_groups}}};
}

// The weights of all experts, with a segment for each.
ScaledOperand of_all_experts(const ScaledOperand& codes, int64_t experts, int dim) {
  const auto segments = [&](Operand operand) -> Operand {
    const int64_t all = operand.shape[dim];
    if (all % experts != 0) return operand;
    operand.segments.assign(static_cast<size_t>(experts), all / experts);
    operand.segments_along = dim;
    return operand;
  };
  return {segments(codes.codes), segments(codes.scales), codes.greatest};
}

int64_t rows_of(const ExpertSizes& s, bool by_slot) {
  return by_slot ? s.tokens * s.k : s.tokens;
}

// operands(attrs, sizes, pairs) returns the inputs.
template <typename Op, typename Attrs, typename MakeInputs>
void add_scaled_experts(Cases& to, const Attrs& attrs_of, const MakeInputs& operands) {
  for (const CodedExperts& coded : coded_experts()) {
    for (const ExpertSizes& s : coded.sizes) {
      ScaledExpertsAttrs attrs = (coded.*attrs_of)(s.experts);
      std::vector<SlotsOfTokens> all = slots_of_tokens(s);
      if (s.inputs >= 128 && !s.ragged) all.resize(1);  // large, for whole blocks
      for (const SlotsOfTokens& slots : all) {
        const std::string name = std::string(Op::def.name) + "_" + coded.name + slots.name;
        // Tokens of a rank form other groups of pairs, which scales other than powers of two round in another way.
        const bool is_grouped = attrs.first_along_pairs && !attrs.first_along_pairs->powers_of_two();
        to.add<Op>(name, operands(attrs, s, slots), attrs, {.ragged = slots.ragged || is_grouped});
      }
    }
  }
}

template <typename Op>
typename Op::template In<Sample> product_inputs(const ScaledExpertsAttrs& attrs, const ExpertSizes& s,
                                                const SlotsOfTokens& slots, bool by_slot) {
  const ScaledOperand x = scaled(attrs.first, rows_of(s, by_slot), s.inputs),
                      w = of_all_experts(scaled(attrs.second, s.experts * s.outputs, s.inputs), s.experts, 0);
  return {.x = x.codes,
          .x_scales = x.scales,
          .ids = slots.ids,
          .weight = w.codes,
          .weight_scales = w.scales,
          .offsets = slots.offsets,
          .x_greatest = x.greatest,
          .weight_greatest = w.greatest};
}
template <typename Op>
typename Op::template In<Sample> grad_input_inputs(const ScaledExpertsAttrs& attrs, const ExpertSizes& s,
                                                   const SlotsOfTokens& slots, bool by_slot) {
  const ScaledOperand dy = scaled(attrs.first, rows_of(s, by_slot), s.outputs),
                      w = of_all_experts(scaled(attrs.second, s.inputs, s.experts * s.outputs), s.experts,
                                         attrs.second.across ? 0 : 1);
  return {.dy = dy.codes,
          .dy_scales = dy.scales,
          .ids = slots.ids,
          .weight = w.codes,
          .weight_scales = w.scales,
          .offsets = slots.offsets,
          .dy_greatest = dy.greatest,
          .weight_greatest = w.greatest};
}
template <typename Op>
typename Op::template In<Sample> grad_weight_inputs(const ScaledExpertsAttrs& attrs, const ExpertSizes& s,
                                                    const SlotsOfTokens& slots, bool dy_by_slot) {
  const ScaledOperand dy = scaled(attrs.first, rows_of(s, dy_by_slot), s.outputs),
                      x = scaled(attrs.second, rows_of(s, !dy_by_slot), s.inputs);
  OptionalOperand places;
  if (attrs.pair_rounding.stochastic) {
    Operand of_rows = i32(2 * rows_of(s, dy_by_slot), 1000);
    of_rows.shape = {rows_of(s, dy_by_slot), 2};
    places = of_rows;
  }
  return {.dy = dy.codes,
          .dy_scales = dy.scales,
          .x = x.codes,
          .x_scales = x.scales,
          .ids = slots.ids,
          .offsets = slots.offsets,
          .dy_greatest = dy.greatest,
          .x_greatest = x.greatest,
          .places = places};
}

// The two matmuls at which rates are measured, as those of ops/experts.
ExpertSizes timed_in() {
  return {"",          kTimedTokens,        kTimedSlots,  kTimedExperts,
          kTimedWidth, 2 * kTimedExpertFfn, kTimedTokens, false};
}
ExpertSizes timed_out() {
  return {"", kTimedTokens, kTimedSlots, kTimedExperts, kTimedExpertFfn, kTimedWidth, kTimedTokens, false};
}
SlotsOfTokens timed_slots() {
  return {"", false, timed_ids(), {}};
}
const CodedExperts& timed_rules() {
  static const CodedExperts kRules{"block", kExpertBlock, kExpertSquare, false, {}};
  return kRules;
}

template <typename Op>
void product_cases(Cases& to, bool by_slot, const ExpertSizes& timed) {
  const auto in = [by_slot](const ScaledExpertsAttrs& attrs, const ExpertSizes& s,
                            const SlotsOfTokens& slots) {
    return product_inputs<Op>(attrs, s, slots, by_slot);
  };
  add_scaled_experts<Op>(to, &CodedExperts::product, in);
  const ExpertSizes s = expert_sizes().front();
  ScaledExpertsAttrs half = coded_experts().front().product(s.experts);
  half.out = DType::kBF16;
  to.add<Op>(std::string(Op::def.name) + "_to_bf16", in(half, s, slots_of_tokens(s).front()), half,
             {.tolerance = 2e-2});
  const ScaledExpertsAttrs attrs = timed_rules().product(timed.experts);
  to.time<Op>(in(attrs, timed, timed_slots()), attrs);
}
template <typename Op>
void grad_input_cases(Cases& to, bool by_slot, const ExpertSizes& timed) {
  const auto in = [by_slot](const ScaledExpertsAttrs& attrs, const ExpertSizes& s,
                            const SlotsOfTokens& slots) {
    return grad_input_inputs<Op>(attrs, s, slots, by_slot);
  };
  add_scaled_experts<Op>(to, &CodedExperts::grad_input, in);
  const ScaledExpertsAttrs attrs = timed_rules().grad_input(timed.experts);
  to.time<Op>(in(attrs, timed, timed_slots()), attrs);
}
template <typename Op>
void grad_weight_cases(Cases& to, bool dy_by_slot, const ExpertSizes& timed) {
  const auto in = [dy_by_slot](const ScaledExpertsAttrs& attrs, const ExpertSizes& s,
                               const SlotsOfTokens& slots) {
    return grad_weight_inputs<Op>(attrs, s, slots, dy_by_slot);
  };
  add_scaled_experts<Op>(to, &CodedExperts::grad_weight, in);
  const ScaledExpertsAttrs attrs = timed_rules().grad_weight(timed.experts);
  for (const bool adds : {false, true}) to.time<Op>(in(attrs, timed, timed_slots()), attrs, {.adds = adds});
}

}  // namespace

template <>
void cases<ops::ScaledExpertsIn>(Cases& to) {
  product_cases<ops::ScaledExpertsIn>(to, false, timed_in());
}
template <>
void cases<ops::ScaledExpertsInGradInput>(Cases& to) {
  grad_input_cases<ops::ScaledExpertsInGradInput>(to, true, timed_in());
}
template <>
void cases<ops::ScaledExpertsInGradWeight>(Cases& to) {
  grad_weight_cases<ops::ScaledExpertsInGradWeight>(to, true, timed_in());
}
template <>
void cases<ops::ScaledExpertsOut>(Cases& to) {
  product_cases<ops::ScaledExpertsOut>(to, true, timed_out());
}
template <>
void cases<ops::ScaledExpertsOutGradInput>(Cases& to) {
  grad_input_cases<ops::ScaledExpertsOutGradInput>(to, false, timed_out());
}
template <>
void cases<ops::ScaledExpertsOutGradWeight>(Cases& to) {
  grad_weight_cases<ops::ScaledExpertsOutGradWeight>(to, false, timed_out());
}

}  // namespace strata::device
