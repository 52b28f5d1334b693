#include "train/expert_load.h"

#include <algorithm>
#include <utility>

#include "comm/exchange.h"

namespace strata::train {
namespace {

// Whether a rank stands at the first place of every axis but the pipeline's.
bool is_first_of_its_stage(const program::Ranks& ranks) {
  for (size_t axis = 0; axis < ranks.mesh().axes.size(); ++axis) {
    if (ranks.mesh().axes[axis].name != "pipeline" && ranks.coordinates()[axis] != 0) return false;
  }
  return true;
}

}  // namespace

ExpertWatch::ExpertWatch(const models::ModelConfig& model, const graph::Graph& graph,
                         const program::Ranks* ranks)
    : experts_(static_cast<size_t>(model.experts.count)) {
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    if (!model.experts.at(layer)) continue;
    std::string counts = "layers." + std::to_string(layer) + ".ffn.expert_tokens";
    if (graph.find_value(counts) == graph::kNone) counts.clear();
    layers_.push_back({layer, std::move(counts)});
  }
  if (ranks != nullptr && ranks->mesh().size("pipeline") > 1 && is_first_of_its_stage(*ranks))
    stages_ = &ranks->pipeline();
}

ExpertLoad ExpertWatch::read(const program::Executor& executor) const {
  std::vector<observe::LayerTokens> known;
  for (const Layer& layer : layers_) {
    if (!layer.counts.empty()) known.push_back({layer.layer, executor.read_all<int64_t>(layer.counts)});
  }
  if (stages_ == nullptr) return load_of(std::move(known));
  // One stage has counted a layer, the others add nothing to it.
  std::vector<double> all(layers_.size() * experts_);
  for (size_t i = 0, own = 0; i < layers_.size(); ++i) {
    if (layers_[i].counts.empty()) continue;
    std::copy(known[own].tokens.begin(), known[own].tokens.end(),
              all.begin() + static_cast<std::ptrdiff_t>(i * experts_));
    ++own;
  }
  comm::sum_over(*stages_, all);
  known.clear();
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * experts_);
    known.push_back({layers_[i].layer, {first, first + static_cast<std::ptrdiff_t>(experts_)}});
  }
  return load_of(std::move(known));
}

ExpertLoad load_of(std::vector<observe::LayerTokens> layers) {
  ExpertLoad load;
  for (const observe::LayerTokens& layer : layers) {
    const observe::ExpertSpread spread = observe::spread_of(layer.tokens);
    load.max_violation = std::max(load.max_violation, spread.max_violation);
    load.entropy += spread.entropy / static_cast<double>(layers.size());
    load.dead += spread.dead;
  }
  load.layers = std::move(layers);
  return load;
}

}  // namespace strata::train
