#include "ops/experts/experts.h"

#include "ops/case_experts.h"

namespace strata::device {

using namespace op_rows;

namespace {

// What the products of all experts, with widths s.inputs and s.outputs, read and give.
struct ExpertRows {
  Operand x, h, y, y_of_slots, w;  // x and y: a row a token; h and y_of_slots: a row a slot

  explicit ExpertRows(const ExpertSizes& s)
      : x(act({s.tokens, s.inputs})),
        h(act({s.tokens * s.k, s.inputs})),
        y(act({s.tokens, s.outputs})),
        y_of_slots(act({s.tokens * s.k, s.outputs})),
        w(of_experts(s.experts, s.outputs, {s.experts * s.outputs, s.inputs})) {}
};

// Adds a case for each way in which tokens have slots; operands(rows, slots) gives its inputs.
template <typename Op, typename MakeInputs>
void add_expert_products(Cases& to, const std::string& name, const MakeInputs& operands) {
  for (const ExpertSizes& s : expert_sizes()) {
    const ExpertRows rows(s);
    for (const SlotsOfTokens& slots : slots_of_tokens(s))
      to.add<Op>(name + slots.name, operands(rows, slots), {s.experts}, {.ragged = slots.ragged});
  }
}

// At the sizes of rates: what each of two products reads and gives, and its weights.
constexpr ops::ExpertsAttrs kTimedExpertsAttrs{kTimedExperts};
Operand timed_gate_up() {
  return act({kTimedTokens * kTimedSlots, 2 * kTimedExpertFfn});
}
Operand timed_expert_hidden() {
  return act({kTimedTokens * kTimedSlots, kTimedExpertFfn});
}
Operand timed_up() {
  return f32({kTimedExperts * 2 * kTimedExpertFfn, kTimedWidth});
}
Operand timed_down() {
  return f32({kTimedExperts * kTimedWidth, kTimedExpertFfn});
}

}  // namespace

template <>
void cases<ops::ExpertsIn>(Cases& to) {
  using In = ops::ExpertsIn::In<Sample>;
  add_expert_products<ops::ExpertsIn>(
      to, "experts_in", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return In{.x = rows.x, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
      });
  to.time<ops::ExpertsIn>({.x = timed_rows(), .ids = timed_ids(), .weight = timed_up(), .offsets = absent()},
                          kTimedExpertsAttrs);
}

template <>
void cases<ops::ExpertsInGradInput>(Cases& to) {
  using Op = ops::ExpertsInGradInput;
  add_expert_products<Op>(
      to, "experts_in_grad_input", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{
            .dy = rows.y_of_slots, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
      });
  to.time<Op>({.dy = timed_gate_up(), .ids = timed_ids(), .weight = timed_up(), .offsets = absent()},
              kTimedExpertsAttrs);
}

template <>
void cases<ops::ExpertsInGradWeight>(Cases& to) {
  using Op = ops::ExpertsInGradWeight;
  add_expert_products<Op>(
      to, "experts_in_grad_weight", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{.dy = rows.y_of_slots, .x = rows.x, .ids = slots.ids, .offsets = slots.offsets};
      });
  to.time<Op>({.dy = timed_gate_up(), .x = timed_rows(), .ids = timed_ids(), .offsets = absent()},
              kTimedExpertsAttrs);
}

template <>
void cases<ops::ExpertsOut>(Cases& to) {
  using Op = ops::ExpertsOut;
  add_expert_products<Op>(to, "experts_out", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
    return Op::In<Sample>{.x = rows.h, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
  });
  to.time<Op>({.x = timed_expert_hidden(), .ids = timed_ids(), .weight = timed_down(), .offsets = absent()},
              kTimedExpertsAttrs);
}

template <>
void cases<ops::ExpertsOutGradInput>(Cases& to) {
  using Op = ops::ExpertsOutGradInput;
  add_expert_products<Op>(
      to, "experts_out_grad_input", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{.dy = rows.y, .ids = slots.ids, .weight = rows.w, .offsets = slots.offsets};
      });
  to.time<Op>({.dy = timed_rows(), .ids = timed_ids(), .weight = timed_down(), .offsets = absent()},
              kTimedExpertsAttrs);
}

template <>
void cases<ops::ExpertsOutGradWeight>(Cases& to) {
  using Op = ops::ExpertsOutGradWeight;
  add_expert_products<Op>(
      to, "experts_out_grad_weight", [](const ExpertRows& rows, const SlotsOfTokens& slots) {
        return Op::In<Sample>{.dy = rows.y, .x = rows.h, .ids = slots.ids, .offsets = slots.offsets};
      });
  to.time<Op>({.dy = timed_rows(), .x = timed_expert_hidden(), .ids = timed_ids(), .offsets = absent()},
              kTimedExpertsAttrs);
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
