#include "ops/experts/experts.h"

#include "ops/case_experts.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Operands and results of the matmuls of all experts, with widths s.inputs and s.outputs.
struct ExpertRows {
  Operand x, h, y, y_of_slots, w;  // x and y: one row per token; h and y_of_slots: one per pair

  explicit ExpertRows(const ExpertSizes& s)
      : x(act({s.tokens, s.inputs})),
        h(act({s.tokens * s.k, s.inputs})),
        y(act({s.tokens, s.outputs})),
        y_of_slots(act({s.tokens * s.k, s.outputs})),
        w(of_experts(s.experts, s.outputs, {s.experts * s.outputs, s.inputs})) {}
};

// Adds a case for each case of numbers of experts of tokens; operands(rows, pairs) returns its inputs.
template <typename Op, typename MakeInputs>
void add_expert_products(Cases& to, const std::string& name, const MakeInputs& operands) {
  for (const ExpertSizes& s : expert_sizes()) {
    const ExpertRows rows(s);
    for (const SlotsOfTokens& slots : slots_of_tokens(s))
      to.add<Op>(name + slots.name, operands(rows, slots), {s.experts}, {.ragged = slots.ragged});
  }
}

// Inputs, outputs and weights of the two matmuls at which rates are measured: with many rows for each expert, where
// arithmetic limits them, and with 64 and 16, where reading the weights does more and more.
struct TimedExperts {
  int64_t tokens, slots, experts, width, ffn;

  ops::ExpertsAttrs attrs() const { return {experts}; }
  Operand rows() const { return act({tokens, width}); }
  Operand gate_up() const { return act({tokens * slots, 2 * ffn}); }
  Operand hidden() const { return act({tokens * slots, ffn}); }
  Operand up() const { return f32({experts * 2 * ffn, width}); }
  Operand down() const { return f32({experts * width, ffn}); }
  Operand ids() const { return busy_ids(tokens, slots, experts); }
};
constexpr TimedExperts kTimed[] = {{kTimedTokens, kTimedSlots, kTimedExperts, kTimedWidth, kTimedExpertFfn},
                                   {256, 8, 32, 256, 128},
                                   {64, 8, 32, 256, 128}};

}  // namespace

template <>
void cases<ops::ExpertsIn>(Cases& to) {
  using In = ops::ExpertsIn::In<Sample>;
  add_expert_products<ops::ExpertsIn>(
      to, "experts_in", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return In{.x = rows.x, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
      });
  for (const TimedExperts& one : kTimed)
    to.time<ops::ExpertsIn>({.x = one.rows(), .ids = one.ids(), .weight = one.up(), .offsets = absent()},
                            one.attrs());
}

template <>
void cases<ops::ExpertsInGradInput>(Cases& to) {
  using Op = ops::ExpertsInGradInput;
  add_expert_products<Op>(
      to, "experts_in_grad_input", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{
            .dy = rows.y_of_slots, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
      });
  for (const TimedExperts& one : kTimed)
    to.time<Op>({.dy = one.gate_up(), .ids = one.ids(), .weight = one.up(), .offsets = absent()},
                one.attrs());
}

template <>
void cases<ops::ExpertsInGradWeight>(Cases& to) {
  using Op = ops::ExpertsInGradWeight;
  add_expert_products<Op>(
      to, "experts_in_grad_weight", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{.dy = rows.y_of_slots, .x = rows.x, .ids = slots.ids, .offsets = slots.offsets};
      });
  for (const TimedExperts& one : kTimed) {
    for (const bool adds : {false, true})
      to.time<Op>({.dy = one.gate_up(), .x = one.rows(), .ids = one.ids(), .offsets = absent()}, one.attrs(),
                  {.adds = adds});
  }
}

template <>
void cases<ops::ExpertsOut>(Cases& to) {
  using Op = ops::ExpertsOut;
  add_expert_products<Op>(to, "experts_out", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
    return Op::In<Sample>{.x = rows.h, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
  });
  for (const TimedExperts& one : kTimed)
    to.time<Op>({.x = one.hidden(), .ids = one.ids(), .weight = one.down(), .offsets = absent()},
                one.attrs());
}

template <>
void cases<ops::ExpertsOutGradInput>(Cases& to) {
  using Op = ops::ExpertsOutGradInput;
  add_expert_products<Op>(
      to, "experts_out_grad_input", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{.dy = rows.y, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
      });
  for (const TimedExperts& one : kTimed)
    to.time<Op>({.dy = one.rows(), .ids = one.ids(), .weight = one.down(), .offsets = absent()}, one.attrs());
}

template <>
void cases<ops::ExpertsOutGradWeight>(Cases& to) {
  using Op = ops::ExpertsOutGradWeight;
  add_expert_products<Op>(
      to, "experts_out_grad_weight", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{.dy = rows.y, .x = rows.h, .ids = slots.ids, .offsets = slots.offsets};
      });
  for (const TimedExperts& one : kTimed) {
    for (const bool adds : {false, true})
      to.time<Op>({.dy = one.rows(), .x = one.hidden(), .ids = one.ids(), .offsets = absent()}, one.attrs(),
                  {.adds = adds});
  }
}

template <>
void cases<ops::ExpertCounts>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const auto add = [&](const char* name, const Operand& ids, const Operand& targets) {
      to.add<ops::ExpertCounts>(name + s.name, {.ids = ids, .targets = targets}, {s.experts},
                                {.ragged = s.ragged});
    };
    add("expert_counts", ids_of(s), absent());
    add("expert_counts_of_targets", ids_of(s), targets_of(s));
    add("expert_counts_of_kept", ids_with_dropped(s), targets_of(s));
  }
  to.untimed<ops::ExpertCounts>(kFewNumbers);
}

template <>
void cases<ops::RunningCounts>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const Operand counts{.dtype = DType::kI64, .shape = {s.experts}, .content = [](int64_t e) {
                           return static_cast<double>(64 * (e * 1000 % 77));
                         }};
    to.add<ops::RunningCounts>("running_counts" + s.name, {.counts = counts}, {}, {.ragged = s.ragged});
  }
  to.untimed<ops::RunningCounts>(kFewNumbers);
}

}  // namespace strata::device
