#include "train/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "comm/exchange.h"

namespace strata::train {
namespace {

// Whether a rank stands at the first place of every axis but the pipeline's.
bool is_first_of_its_stage(const program::Ranks& ranks) {
  for (const graph::Axis axis : graph::kAllAxes) {
    if (axis != graph::Axis::kPipeline && ranks.coordinates()[axis] != 0) return false;
  }
  return true;
}

// How far the busiest of the ranks that share experts is above the mean, over the mean.
double rank_violation(const std::vector<int64_t>& tokens, int64_t ranks) {
  const auto each = std::ssize(tokens) / ranks;
  int64_t most = 0, all = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto first = tokens.begin() + rank * each;
    const int64_t own = std::accumulate(first, first + each, int64_t{0});
    most = std::max(most, own);
    all += own;
  }
  return all == 0 ? 0 : static_cast<double>(most * ranks) / static_cast<double>(all) - 1;
}

}  // namespace

ExpertWatch::ExpertWatch(const models::ModelConfig& model, const graph::Graph& graph,
                         const program::Ranks& ranks)
    : experts_(static_cast<size_t>(model.experts.count)), drops_(model.experts.capacity.bounds()) {
  // An encoder's layers are counted before the decoder's.
  const auto add = [&](const std::string& stack, int64_t layer, int64_t number, bool has_experts) {
    if (!has_experts) return;
    const std::string block = stack + "layers." + std::to_string(layer) + ".ffn.";
    layers_.push_back({number, block + "expert_tokens", block + "router_squares", block + "expert_rounds",
                       block + "expert_kept", graph.find_value(block + "expert_tokens") != graph::kNone});
  };
  for (int64_t layer = 0; layer < model.encoder_layers; ++layer)
    add("encoder.", layer, layer, model.experts.at_encoder(layer));
  for (int64_t layer = 0; layer < model.layers + model.predict_layers; ++layer)
    add("", layer, model.encoder_layers + layer, model.experts.at(layer));
  if (ranks.mesh().size(graph::Axis::kPipeline) > 1 && is_first_of_its_stage(ranks))
    stages_ = &ranks.pipeline();
}

ExpertLoad ExpertWatch::read(const program::Executor& executor, double targets) const {
  const program::CompileOptions& options = executor.set().options;
  const int64_t shared = options.experts.ranks * options.experts.tensor;
  const auto ranks = static_cast<double>(options.mesh.ranks() / options.mesh.size(graph::Axis::kPipeline));
  // By layer the counts, the squares, the rounds and the slots that were not dropped. One stage has a layer,
  // and the others add nothing to it.
  const size_t width = experts_ + 3;
  std::vector<double> all(layers_.size() * width);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].is_here) continue;
    const auto counts = executor.read_all<int64_t>(layers_[i].counts);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * width);
    auto behind = std::copy(counts.begin(), counts.end(), first);
    *behind++ = executor.read<double>(layers_[i].squares);
    *behind++ = shared > 1 ? static_cast<double>(executor.read<int64_t>(layers_[i].rounds)) / ranks : 0;
    if (!drops_) continue;
    const auto kept = executor.read_all<int64_t>(layers_[i].kept);
    *behind = static_cast<double>(std::accumulate(kept.begin(), kept.end(), int64_t{0}));
  }
  if (stages_ != nullptr) comm::sum_over(*stages_, all);
  ExpertLoad load;
  load.is_shared = shared > 1;
  double wanted = 0, kept = 0;  // slots
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (stages_ == nullptr && !layers_[i].is_here) continue;
    const std::span<const double> of_layer(all.data() + i * width, width);
    observe::LayerTokens& layer = load.layers.emplace_back();
    layer.layer = layers_[i].layer;
    for (const double count : of_layer.first(experts_)) layer.tokens.push_back(std::llround(count));
    if (targets > 0) load.router_z = std::max(load.router_z, std::sqrt(of_layer[experts_] / targets));
    load.rounds += of_layer[experts_ + 1];
    wanted = std::accumulate(layer.tokens.begin(), layer.tokens.end(), wanted);
    kept += of_layer[experts_ + 2];
    load.rank_violation = std::max(load.rank_violation, rank_violation(layer.tokens, options.experts.ranks));
    const observe::ExpertSpread spread = observe::spread_of(layer.tokens);
    load.max_violation = std::max(load.max_violation, spread.max_violation);
    load.entropy += spread.entropy;
    load.dead += spread.dead;
  }
  if (drops_) load.dropped = wanted > 0 ? 1 - kept / wanted : 0;
  if (!load.layers.empty()) load.entropy /= static_cast<double>(load.layers.size());
  return load;
}

}  // namespace strata::train
