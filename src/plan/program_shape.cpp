#include "plan/program_shape.h"

#include <algorithm>
#include <cmath>

namespace strata::planning {

ProgramShape::ProgramShape(const TrainingJob& of)
    : job(of),
      model(of.shape),
      layout(of.layout),
      counts(count_parameters(of.shape)),
      t(static_cast<double>(layout.tensor)),
      p(static_cast<double>(layout.pipeline)),
      m(layout.micro_batches),
      tokens(static_cast<double>(layout.micro_batch * of.sequence) / static_cast<double>(layout.context)),
      element(of.precision == Precision::kFp32 ? 4 : 2),
      h(static_cast<double>(model.hidden)),
      sparse(static_cast<double>(model.moe_layers()) / static_cast<double>(model.layers)),
      alternates(model.has_experts() && model.moe.every > 1) {
  if (model.latent.used()) {
    const LatentAttention& latent = model.latent;
    const auto a = static_cast<double>(model.heads);
    query = a * static_cast<double>(latent.nope_dim + latent.rope_dim);
    value = a * static_cast<double>(latent.value_dim);
    keys = query + value;
    // Projections to the latents are whole on every tensor rank.
    const double down = h * static_cast<double>(latent.query_rank + latent.key_value_rank + latent.rope_dim);
    attention = (counts.attention - down) / t + down;
    const auto rank = static_cast<double>(latent.key_value_rank);
    gathered = rank + static_cast<double>(latent.rope_dim);
    expanded = a * static_cast<double>(latent.nope_dim + latent.value_dim) * rank / t;
  } else {
    query = value = static_cast<double>(model.heads * model.head_dim);
    keys = static_cast<double>(2 * model.kv_heads * model.head_dim);
    const double of_keys = h * keys;
    attention = counts.attention / t;
    if (model.kv_heads < layout.tensor) {
      attention += of_keys - of_keys / t;
      keys *= t / static_cast<double>(model.kv_heads);
    }
    gathered = keys / t;
  }
}

double ProgramShape::dense_flops() const {
  return 6 * (counts.attention + counts.mlp) + 3 * static_cast<double>(job.sequence) * (query + value);
}

double ProgramShape::sparse_flops() const {
  const double active = static_cast<double>(model.moe.per_token + model.moe.shared) * counts.expert;
  return 6 * (counts.attention + active) + 3 * static_cast<double>(job.sequence) * (query + value);
}

PartFlops ProgramShape::parts() const {
  PartFlops out{.head = 6 * counts.head, .embedding = 16 * h};
  if (model.costs != nullptr) {
    out.layers = model.costs->flops(job.sequence);
    return out;
  }
  const double dense = dense_flops(), with = model.has_experts() ? sparse_flops() : 0;
  if (alternates) {
    out.layers.assign(static_cast<size_t>(model.layers), sparse * with + (1 - sparse) * dense);
    return out;
  }
  out.layers.assign(static_cast<size_t>(model.dense_layers()), dense);
  out.layers.insert(out.layers.end(), static_cast<size_t>(model.moe_layers()), with);
  return out;
}

void LayerMix::add(const LayerMix& other) {
  dense += other.dense;
  sparse += other.sparse;
  kinds.resize(std::max(kinds.size(), other.kinds.size()));
  for (size_t i = 0; i < other.kinds.size(); ++i) kinds[i] += other.kinds[i];
}

LayerMix ProgramShape::layers_of(const parallel::StageParts& stage) const {
  LayerMix out;
  if (model.each.empty()) {
    out.sparse = sparse_layers(stage);
    out.dense = stage.layers - out.sparse;
    return out;
  }
  for (int32_t i = stage.first_layer; i < stage.first_layer + stage.layers; ++i) {
    const LayerOfKind& one = model.each[static_cast<size_t>(i)];
    (one.has_experts ? out.sparse : out.dense) += 1;
    out.kinds.resize(std::max(out.kinds.size(), static_cast<size_t>(one.kind) + 1));
    out.kinds[static_cast<size_t>(one.kind)] += 1;
  }
  return out;
}

LayerMix ProgramShape::all_layers() const {
  if (!model.each.empty()) return layers_of({.layers = static_cast<int32_t>(model.layers)});
  return {.dense = static_cast<double>(model.dense_layers()),
          .sparse = static_cast<double>(model.moe_layers())};
}

std::vector<LayerCost> ProgramShape::costs_of_kinds(const ClusterSpec& cluster) const {
  std::vector<LayerCost> out;
  const size_t kinds = all_layers().kinds.size();
  for (size_t kind = 0; kind < kinds; ++kind)
    out.push_back(model.costs->of(static_cast<int32_t>(kind), job, cluster));
  return out;
}

double ProgramShape::sparse_layers(const parallel::StageParts& stage) const {
  if (alternates) return sparse * stage.layers;
  const int64_t first = std::max<int64_t>(stage.first_layer, model.dense_layers());
  return static_cast<double>(std::max<int64_t>(0, stage.first_layer + stage.layers - first));
}

double ProgramShape::rows_sent(int64_t devices_per_host) const {
  // Expected number of `groups` of experts that a token reaches: g (1 - C(E - E/g, K) / C(E, K)).
  const auto reached = [&](double groups) {
    const auto experts = static_cast<double>(model.moe.experts);
    double none = 1;
    for (double i = 0; i < static_cast<double>(model.moe.per_token); ++i)
      none *= std::max(0.0, (experts - experts / groups - i) / (experts - i));
    return groups * (1 - none);
  };
  const auto ranks = static_cast<double>(layout.expert);
  const double host = std::min(ranks, static_cast<double>(std::max<int64_t>(1, devices_per_host)));
  const double hosts = ranks / host;
  return reached(hosts) * (hosts - 1) / hosts + reached(ranks) * (host - 1) / host;
}

double ProgramShape::expert_rows() const {
  if (layout.expert <= 1) return 0;
  // Of the tokens, those that have an expert on one rank: 1 - C(E - E/R, K) / C(E, K).
  const auto experts = static_cast<double>(model.moe.experts);
  const double own = experts / static_cast<double>(layout.expert);
  double none = 1;
  for (double i = 0; i < static_cast<double>(model.moe.per_token); ++i)
    none *= std::max(0.0, (experts - own - i) / (experts - i));
  return capacity(1 - none, 1);
}

double ProgramShape::expert_pairs() const {
  const auto k = static_cast<double>(model.moe.per_token), ranks = static_cast<double>(layout.expert);
  if (layout.expert <= 1) return cuts_experts() ? k : k / t;
  return capacity(k / ranks, std::min(k, static_cast<double>(model.moe.experts) / ranks));
}

double ProgramShape::capacity(double share, double most) const {
  constexpr double kCapacity = 1.25, kDeviations = 4;
  // Of a rank that sends; where ranks share the width of each expert, all have the same tokens.
  const double rows = cuts_experts() ? tokens : tokens / t;
  const double balanced = rows * share;
  return std::min(rows * most, kCapacity * balanced + kDeviations * std::sqrt(balanced)) *
         static_cast<double>(layout.expert) / tokens;
}

int64_t ProgramShape::expert_inner() const {
  return layout.context * (cuts_experts() ? 1 : layout.tensor);
}

double ProgramShape::expert_groups() const {
  return std::max(1.0, static_cast<double>(layout.expert) / static_cast<double>(expert_inner()));
}

double ProgramShape::expert_shards(int zero_stage) const {
  if (layout.zero_stage < zero_stage) return 1;
  if (layout.expert <= 1) return static_cast<double>(layout.shards);
  return std::max(1.0, static_cast<double>(layout.shards) / expert_groups());
}

}  // namespace strata::planning
