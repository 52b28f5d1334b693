#include "train/collapse_alarm.h"

#include <numeric>

namespace strata::training {

bool CollapseAlarm::is_unbalanced(const observe::LayerTokens& layer,
                                  const observe::ExpertSpread& spread) const {
  const auto experts = std::ssize(layer.tokens);
  const double least = static_cast<double>(chosen_) + kShareOfChoice * static_cast<double>(experts - chosen_);
  return experts > chosen_ && (spread.in_use <= least || 2 * spread.dead > experts);
}

std::optional<CollapseAlarm::Collapse> CollapseAlarm::step(const std::vector<observe::LayerTokens>& layers) {
  states_.resize(layers.size());
  std::optional<Collapse> found;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::vector<int64_t>& tokens = layers[i].tokens;
    if (std::accumulate(tokens.begin(), tokens.end(), int64_t{0}) < kLeastSlots * std::ssize(tokens))
      continue;
    const observe::ExpertSpread spread = observe::spread_of(tokens);
    State& state = states_[i];
    state.steps = is_unbalanced(layers[i], spread) != state.collapsed ? state.steps + 1 : 0;
    if (state.steps < kSteps) continue;
    state = {.steps = 0, .collapsed = !state.collapsed};
    if (!state.collapsed) continue;
    if (!found) {
      found =
          Collapse{.layers = {}, .worst = layers[i].layer, .experts = std::ssize(tokens), .spread = spread};
    }
    found->layers.push_back(layers[i].layer);
    if (spread.in_use >= found->spread.in_use) continue;
    found->worst = layers[i].layer;
    found->experts = std::ssize(tokens);
    found->spread = spread;
  }
  return found;
}

}  // namespace strata::training
