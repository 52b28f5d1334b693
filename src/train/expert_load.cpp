#include "train/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "comm/exchange.h"

namespace strata::training {
namespace {

// Whether a rank's coordinates are 0 on every axis except the pipeline.
bool is_first_of_its_stage(const program::Ranks& ranks) {
  for (const graph::Axis axis : graph::kAllAxes) {
    if (axis != graph::Axis::kPipeline && ranks.coordinates()[axis] != 0) return false;
  }
  return true;
}

// Excess of the busiest of the ranks that share experts over the mean, divided by the mean.
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

ExpertWatch::ExpertWatch(const program::Executor& executor, size_t program)
    : options_(executor.set().options),
      experts_(static_cast<size_t>(options_.model.experts.count)),
      drops_(options_.model.experts.capacity.bounds()) {
  const models::ModelConfig& model = options_.model;
  const program::Ranks& ranks = executor.ranks();
  const auto add = [&](int64_t number) {
    const auto metric = [&](graph::MetricKind kind) {
      return program::Metric(executor, program, kind, static_cast<int32_t>(number));
    };
    layers_.push_back({number, metric(graph::MetricKind::kExpertTokens),
                       metric(graph::MetricKind::kRouterSquares), metric(graph::MetricKind::kExpertRounds),
                       metric(graph::MetricKind::kExpertKept)});
  };
  // An encoder's layers are numbered before the decoder's.
  for (int64_t layer = 0; layer < model.encoder_layers; ++layer)
    if (model.experts.at_encoder(layer)) add(layer);
  for (int64_t layer = 0; layer < model.layers + model.predict_layers; ++layer)
    if (model.experts.at(layer)) add(model.encoder_layers + layer);
  if (ranks.mesh().size(graph::Axis::kPipeline) > 1 && is_first_of_its_stage(ranks))
    stages_ = &ranks.pipeline();
}

ExpertLoad ExpertWatch::read(double targets) const {
  const int64_t shared = options_.experts.ranks * options_.experts.tensor;
  // Ranks that count passes: one of each tensor group that shards every expert.
  const int64_t counting =
      options_.mesh.ranks() / options_.mesh.size(graph::Axis::kPipeline) / options_.experts.tensor;
  const auto ranks = static_cast<double>(counting);
  // For each layer: the counts, the squares, the passes and the token–expert pairs not dropped. One stage has
  // a layer; the others add zeros.
  const size_t width = experts_ + 3;
  std::vector<double> all(layers_.size() * width);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].counts.is_here()) continue;
    const auto counts = layers_[i].counts.read_all<int64_t>();
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * width);
    auto next = std::copy(counts.begin(), counts.end(), first);
    *next++ = layers_[i].squares.read<double>();
    *next++ =
        layers_[i].rounds.is_here() ? static_cast<double>(layers_[i].rounds.read<int64_t>()) / ranks : 0;
    if (!drops_) continue;
    const auto kept = layers_[i].kept.read_all<int64_t>();
    *next = static_cast<double>(std::accumulate(kept.begin(), kept.end(), int64_t{0}));
  }
  if (stages_ != nullptr) comm::sum_over(*stages_, all);
  ExpertLoad load;
  load.is_shared = shared > 1;
  double wanted = 0, kept = 0;  // token–expert pairs
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (stages_ == nullptr && !layers_[i].counts.is_here()) continue;
    const std::span<const double> of_layer(all.data() + i * width, width);
    observe::LayerTokens& layer = load.layers.emplace_back();
    layer.layer = layers_[i].layer;
    for (const double count : of_layer.first(experts_)) layer.tokens.push_back(std::llround(count));
    if (targets > 0) load.router_z = std::max(load.router_z, std::sqrt(of_layer[experts_] / targets));
    load.rounds += of_layer[experts_ + 1];
    wanted = std::accumulate(layer.tokens.begin(), layer.tokens.end(), wanted);
    kept += of_layer[experts_ + 2];
    load.rank_violation = std::max(load.rank_violation, rank_violation(layer.tokens, options_.experts.ranks));
    const observe::ExpertSpread spread = observe::spread_of(layer.tokens);
    load.max_violation = std::max(load.max_violation, spread.max_violation);
    load.entropy += spread.entropy;
    load.dead += spread.dead;
  }
  if (drops_) load.dropped = wanted > 0 ? 1 - kept / wanted : 0;
  if (!load.layers.empty()) load.entropy /= static_cast<double>(load.layers.size());
  return load;
}

}  // namespace strata::training
