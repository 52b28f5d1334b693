#include "ops/case_experts.h"
#include "ops/expert_bias/expert_bias.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Calls add(sizes, slots) for each way in which tokens have slots.
template <typename Add>
void for_slots(const Add& add) {
  for (const ExpertSizes& s : expert_sizes())
    for (const SlotsOfTokens& slots : slots_of_tokens(s)) add(s, slots);
}
Operand biases(const ExpertSizes& s) {
  return of_experts(s.experts, s.outputs, {s.experts * s.outputs});
}
Operand biased_tokens(const ExpertSizes& s) {
  return act({s.tokens, s.outputs});
}
Operand biased_slots(const ExpertSizes& s) {
  return act({s.tokens * s.k, s.outputs});
}

}  // namespace

template <>
void cases<ops::ExpertBias>(Cases& to) {
  for_slots([&](const ExpertSizes& s, const SlotsOfTokens& slots) {
    const auto add = [&](const char* name, const Operand& x, const Operand& weights) {
      to.add<ops::ExpertBias>(
          name + slots.name,
          {.x = x, .ids = slots.ids, .weights = weights, .bias = biases(s), .offsets = slots.offsets},
          {s.experts}, {.ragged = slots.ragged});
    };
    add("expert_bias", biased_slots(s), absent());
    add("expert_bias_weighted", biased_tokens(s), slots.weights);
  });
  to.untimed<ops::ExpertBias>(kPass);
}

template <>
void cases<ops::ExpertBiasGrad>(Cases& to) {
  for_slots([&](const ExpertSizes& s, const SlotsOfTokens& slots) {
    const auto add = [&](const char* name, const Operand& dy, const Operand& weights) {
      to.add<ops::ExpertBiasGrad>(name + slots.name,
                                  {.dy = dy, .ids = slots.ids, .weights = weights, .offsets = slots.offsets},
                                  {s.experts}, {.ragged = slots.ragged});
    };
    add("expert_bias_grad", biased_slots(s), absent());
    add("expert_bias_grad_weighted", biased_tokens(s), slots.weights);
  });
  to.untimed<ops::ExpertBiasGrad>(kPass);
}

template <>
void cases<ops::ExpertBiasGradWeights>(Cases& to) {
  for_slots([&](const ExpertSizes& s, const SlotsOfTokens& slots) {
    to.add<ops::ExpertBiasGradWeights>(
        "expert_bias_grad_weights" + slots.name,
        {.dy = biased_tokens(s), .ids = slots.ids, .bias = biases(s), .offsets = slots.offsets}, {s.experts},
        {.ragged = slots.ragged});
  });
  to.untimed<ops::ExpertBiasGradWeights>(kPass);
}

}  // namespace strata::device
