// Says when a router has collapsed: when it sends nearly all tokens to a few experts, and keeps doing so.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "observe/expert_load.h"

namespace strata::train {

// A layer is unbalanced in a step where its tokens use no more than k + (E − k) / 4 experts (as many equally
// busy ones would have the entropy of the shares; k is what a collapsed router leaves), or where more than
// half of the experts have no token. Steps with fewer than 8 slots an expert say nothing. It has collapsed
// where it was so in 20 steps one after the other, and recovered where it was not in 20.
class CollapseAlarm {
 public:
  static constexpr int64_t kSteps = 20;
  static constexpr double kShareOfChoice = 0.25;
  static constexpr int64_t kLeastSlots = 8;

  struct Collapse {
    std::vector<int64_t> layers;   // that have collapsed with this step
    int64_t worst = 0;             // of these, the one that uses the fewest experts
    int64_t experts = 0;           // that it has
    observe::ExpertSpread spread;  // of that one
  };

  // `chosen`: experts of a token (k).
  explicit CollapseAlarm(int64_t chosen) : chosen_(chosen) {}
  // Of every step, the same layers; each collapse is told once until its layer has recovered.
  std::optional<Collapse> step(const std::vector<observe::LayerTokens>& layers);

 private:
  struct State {
    int64_t steps = 0;  // in a row that are not as the state says
    bool collapsed = false;
  };
  bool is_unbalanced(const observe::LayerTokens& layer, const observe::ExpertSpread& spread) const;

  int64_t chosen_;
  std::vector<State> states_;  // by layer
};

}  // namespace strata::train
