// Sizes of a layout's compiled programs that the formulas for memory and time share (program_model.h).
#pragma once

#include <vector>

#include "plan/layer_costs.h"
#include "plan/pipeline_walk.h"
#include "plan/row_job.h"

namespace strata::planning {

// The layers of a stage, or of all stages of a rank.
struct LayerMix {
  double dense = 0, sparse = 0;    // without and with experts
  std::vector<double> kinds = {};  // by kind, where LayerCosts has them; experts are in none
  double layers() const { return dense + sparse; }
  double sparse_share() const { return layers() > 0 ? sparse / layers() : 0; }
  void add(const LayerMix& other);
};

struct ProgramShape {
  explicit ProgramShape(const TrainingJob& job);

  const TrainingJob& job;
  const ModelShape& model;
  const Layout& layout;
  ParameterCounts counts;
  double t, p, m;  // tensor and pipeline ranks, micro-batches
  double tokens;   // of a micro-batch on one rank of the context axis, for all tensor ranks
  double element;  // bytes of an activation, and of a weight that matmuls read, as it is gathered
  double h;        // widths of a token in elements, for all tensor ranks
  // Keys with values; with latent attention of all heads. With fewer heads of keys than tensor ranks each rank
  // attends to one.
  double query = 0, keys = 0, value = 0;
  // What ranks of the context axis gather of each other's tokens for attention: keys and values of a tensor
  // rank's heads, or latents; and parameters of the projection of latents to these heads, which each of them
  // then multiplies by the latents of all.
  double gathered = 0, expanded = 0;
  double attention = 0;     // projections' parameters of a layer on a tensor rank
  double sparse = 0;        // share of the layers with experts
  bool alternates = false;  // layers with and without experts alternate: all have the mean of both

  // Parameters of a layer without experts, on a tensor rank.
  double dense_parameters() const { return attention + counts.mlp / t + counts.norms; }
  // FLOPs of a layer for one token, forward and backward, with half of the scores and without routers, as
  // stages are balanced (config/pipeline.h).
  double dense_flops() const;
  double sparse_flops() const;
  PartFlops parts() const;
  LayerMix layers_of(const parallel::StageParts& stage) const;
  LayerMix all_layers() const;
  // Of one layer of each kind, by LayerMix::kinds.
  std::vector<LayerCost> costs_of_kinds(const ClusterSpec& cluster) const;
  // Rows of a token that go to other ranks on the way to its experts, with uniform routing: once to each
  // rank, beyond a host once to each host and on from there (ops/expert_dispatch).
  double rows_sent(int64_t devices_per_host) const;
  // Ranks of the tensor and context axes along which experts are shared before the data axis.
  int64_t expert_inner() const;
  // Ranks of the data axis that share experts.
  double expert_groups() const;
  bool cuts_experts() const { return layout.expert_tensor > 1; }
  // Capacity of a rank for rows from others and for token-expert pairs, for each token of all tensor ranks:
  // 1.25 times a balanced routing and four standard deviations (ops/expert_dispatch). Without experts on other
  // ranks no rows are sent, and the capacity of pairs is what there are.
  double expert_rows() const;
  double expert_pairs() const;
  // Ranks over which ZeRO shards the experts' state from this stage on: those that hold the same experts.
  double expert_shards(int zero_stage) const;

 private:
  double capacity(double share, double most) const;
  double sparse_layers(const parallel::StageParts& stage) const;
};

}  // namespace strata::planning
