// Detects routers that have collapsed: that keep sending nearly all tokens to a few experts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "observe/expert_load.h"

namespace strata::training {

// A layer is unbalanced in a step if its tokens use at most k + (E − k) / 4 experts, or if more than half of
// the experts get no token. The number of experts in use is that of equally busy experts with the same
// entropy; a collapsed router uses k. Steps with fewer than 8 token–expert pairs per expert are ignored. A
// layer has collapsed after 20 consecutive unbalanced steps, and recovered after 20 that are balanced.
class CollapseAlarm {
 public:
  static constexpr int64_t kSteps = 20;
  static constexpr double kShareOfChoice = 0.25;
  static constexpr int64_t kLeastSlots = 8;

  struct Collapse {
    std::vector<int64_t> layers;   // those whose collapse this step completes
    int64_t worst = 0;             // the one of them that uses the fewest experts
    int64_t experts = 0;           // number of experts of `worst`
    observe::ExpertSpread spread;  // of `worst`
  };

  // `chosen`: experts per token (k).
  explicit CollapseAlarm(int64_t chosen) : chosen_(chosen) {}
  // Call it after every step, with the same layers. Each collapse is reported once, until its layer recovers.
  std::optional<Collapse> step(const std::vector<observe::LayerTokens>& layers);

 private:
  struct State {
    int64_t steps = 0;  // consecutive steps that contradict `collapsed`
    bool collapsed = false;
  };
  bool is_unbalanced(const observe::LayerTokens& layer, const observe::ExpertSpread& spread) const;

  int64_t chosen_;
  std::vector<State> states_;  // by layer
};

}  // namespace strata::training
