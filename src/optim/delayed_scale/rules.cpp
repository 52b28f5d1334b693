#include "optim/delayed_scale/delayed_scale.h"
#include "optim/update_rules.h"

namespace strata::optim {

const OpDef FollowHistory::def = define<FollowHistory>({
    .name = "follow_history",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<FollowHistory> {
      const Shape& history = node.in.history->shape;
      require(node, history.rank() == 2 && history[0] == 1 && history[1] >= 2,
              "a history must be f32[1, 1 + steps]");
      require(node, node.in.greatest->shape == Shape{1, 1}, "the greatest magnitude must be f32[1, 1]");
      require(node, node.in.decision->shape == Shape{kDecisionBytes}, "decision must be a GuardDecision");
      return {.history = Spec::like(*node.in.history)};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 2); },
    .in_place = {{"history", "history"}},
});

}  // namespace strata::optim
