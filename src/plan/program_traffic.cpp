// Bytes that a rank of compiled programs sends in a step, by formulas: the exchanges that program/traffic.h
// adds up.
#include <algorithm>

#include "plan/program_model.h"
#include "plan/program_shape.h"

namespace strata::planning {
namespace {

constexpr double kWire = 4;  // bytes of a weight or gradient on the way
// Gathers and reductions of hidden states along the tensor axis. Attention, an MLP and experts whose width is
// sharded have two in each pass, and gather their inputs again for the weight gradients; with recomputation a
// layer repeats one.
constexpr double kOfBlock = 5, kRepeated = 1, kOfHead = 3, kOfEmbedding = 2;
// Latent attention gathers its latents instead of hidden states, three times.
constexpr double kOfLatentBlock = 2, kOfLatents = 3;
// Gathers of a token's logits for its experts, and of their ids (4 bytes each); with sharded widths of ids and
// weights too.
constexpr double kOfLogits = 2, kOfIds = 1, kOfSlots = 5;

struct Held {
  LayerMix mix;
  bool embeds = false, has_head = false;
  double activations = 0, gradients = 0;  // messages of a micro-batch
  double layers() const { return mix.layers(); }
};

class Traffic {
 public:
  Traffic(const TrainingJob& job, const ClusterSpec& cluster)
      : s_(job), cluster_(cluster), kinds_(s_.costs_of_kinds(cluster)) {}

  ProgramTraffic largest() const {
    ProgramTraffic most;
    for (const Held& rank : ranks()) {
      const ProgramTraffic one = of_rank(rank);
      most.data = std::max(most.data, one.data);
      most.tensor = std::max(most.tensor, one.tensor);
      most.context = std::max(most.context, one.context);
      most.pipeline = std::max(most.pipeline, one.pipeline);
      most.expert = std::max(most.expert, one.expert);
    }
    return most;
  }

 private:
  std::vector<Held> ranks() const {
    if (s_.layout.pipeline == 1) return {{.mix = s_.all_layers(), .embeds = true, .has_head = true}};
    const auto walked = walk_schedule(s_.layout);
    const auto layout = stages_of(s_.parts(), walked->schedule.stages);
    const std::vector<int32_t>& rank_of = walked->schedule.rank_of_stage;
    std::vector<Held> out(walked->stages.size());
    for (size_t stage = 0; stage < layout->size(); ++stage) {
      const parallel::StageParts& parts = (*layout)[stage];
      Held& rank = out[static_cast<size_t>(rank_of[stage])];
      rank.mix.add(s_.layers_of(parts));
      rank.embeds = rank.embeds || parts.has_embedding;
      rank.has_head = rank.has_head || parts.has_head;
      if (stage + 1 < layout->size() && rank_of[stage + 1] != rank_of[stage]) ++rank.activations;
      if (stage > 0 && rank_of[stage - 1] != rank_of[stage]) ++rank.gradients;
    }
    return out;
  }

  ProgramTraffic of_rank(const Held& rank) const {
    const double stream = s_.element * s_.tokens * s_.h;  // hidden states of a micro-batch
    ProgramTraffic out;
    out.data = data(rank);
    out.pipeline = s_.m * (rank.activations + rank.gradients) * stream / s_.t;
    // The gradients of a table that both ends use.
    if (s_.model.tied && s_.layout.pipeline > 1 && rank.embeds != rank.has_head)
      out.pipeline += kWire * s_.counts.embedding / s_.t /
                      (s_.layout.zero_stage > 0 ? static_cast<double>(s_.layout.shards) : 1);
    const bool full = s_.layout.recompute == Recompute::kFull;
    if (s_.t > 1) {
      const LatentAttention& latent = s_.model.latent;
      double attention = kOfBlock;
      if (latent.used())
        attention = kOfLatentBlock +
                    kOfLatents * static_cast<double>(latent.query_rank + latent.key_value_rank) / s_.h +
                    2 * static_cast<double>(latent.rope_dim) / s_.h;
      const bool cuts = s_.cuts_experts();
      const double words = 4 / (s_.element * s_.h);  // of a token, relative to its hidden state
      const double routed =
          words * (kOfLogits * static_cast<double>(s_.model.moe.experts) +
                   (kOfIds + (cuts ? kOfSlots : 0)) * static_cast<double>(s_.model.moe.per_token));
      const double sparse = (s_.model.moe.shared > 0 ? kOfBlock : 0) + (cuts ? kOfBlock : 0) + routed;
      const double of_layer = attention + (full ? kRepeated : 0);
      const double times = rank.mix.sparse * sparse + rank.mix.dense * kOfBlock + rank.layers() * of_layer +
                           (rank.has_head ? kOfHead : 0) + (rank.embeds ? kOfEmbedding : 0);
      const double dense = (kOfBlock + of_layer) * stream * others(s_.t);
      out.tensor = s_.m * (times * stream * others(s_.t) + of_kinds(rank, &LayerCost::tensor_sent, dense));
    }
    const auto context = static_cast<double>(s_.layout.context);
    if (context > 1) {
      // Keys and values, or latents, are gathered, and their gradients summed into shards; then the weights' gradients.
      const double keys = s_.element * s_.tokens * context * s_.gathered;
      const double shards = s_.layout.zero_stage > 0 ? static_cast<double>(s_.layout.shards) : 1;
      const bool on_context = s_.layout.expert <= (s_.cuts_experts() ? 1 : s_.layout.tensor);
      const double of_layer = others(context) * (full ? 3 : 2) * keys;
      out.context = s_.m * (rank.layers() * of_layer + of_kinds(rank, &LayerCost::context_sent, of_layer)) +
                    others(context) * 2 * kWire * (layers(rank, on_context) + tables(rank)) / shards;
    }
    if (s_.layout.expert > 1)
      out.expert = s_.m * rank.mix.sparse * (full ? 5 : 4) * stream / (s_.cuts_experts() ? 1 : s_.t) *
                   s_.rows_sent(cluster_.devices_per_host);
    return out;
  }

  // Sent by layers of kinds, beyond `each` of a layer.
  double of_kinds(const Held& rank, double LayerCost::*sent, double each) const {
    double out = 0;
    for (size_t i = 0; i < rank.mix.kinds.size(); ++i) out += rank.mix.kinds[i] * (kinds_[i].*sent - each);
    return out;
  }

  static double others(double ranks) { return (ranks - 1) / ranks; }

  // Parameters of matmuls that an axis shards or sums, with experts if all its ranks hold the same.
  double multiplied(const Held& rank, bool with_experts) const {
    const auto shared = static_cast<double>(s_.model.moe.shared);
    double out = rank.layers() * s_.attention + rank.mix.dense * s_.counts.mlp / s_.t +
                 of_kinds(rank, &LayerCost::multiplied, s_.attention + s_.counts.mlp / s_.t) +
                 rank.mix.sparse * shared * s_.counts.expert / s_.t;
    if (with_experts) out += rank.mix.sparse * experts();
    return out;
  }
  // The other ones, which are sent in fp32.
  double wide(const Held& rank) const {
    return rank.layers() * s_.counts.norms + rank.mix.sparse * s_.counts.router +
           of_kinds(rank, &LayerCost::parameters, s_.dense_parameters()) -
           of_kinds(rank, &LayerCost::multiplied, s_.attention + s_.counts.mlp / s_.t);
  }
  double layers(const Held& rank, bool with_experts) const {
    return multiplied(rank, with_experts) + wide(rank);
  }
  double tables(const Held& rank) const {
    const bool both = rank.embeds && rank.has_head && !s_.model.tied;
    return (both ? 2 : rank.embeds || rank.has_head ? 1 : 0) * s_.counts.embedding / s_.t;
  }
  double experts() const {
    return static_cast<double>(s_.model.moe.experts) * s_.counts.expert /
           static_cast<double>(s_.layout.expert * s_.layout.expert_tensor);
  }
  // Whether all ranks of the data axis hold the same experts.
  bool replicated_experts() const { return s_.layout.expert <= s_.expert_inner(); }

  double data(const Held& rank) const {
    const auto ranks = static_cast<double>(s_.layout.data);
    const auto shards = static_cast<double>(s_.layout.shards);
    const double matrices = multiplied(rank, replicated_experts()), rest = wide(rank), table = tables(rank);
    const double held = matrices + rest;
    // Of weights that are gathered, in fp32 parameters.
    const double share = s_.element / kWire;
    const double gathered = share * matrices + rest;
    // Experts that groups of shards hold are summed over the replicas of these.
    const double groups = ranks / (s_.layout.zero_stage > 0 ? shards : s_.expert_groups());
    const double of_experts =
        replicated_experts() ? 0 : 2 * others(std::max(1.0, groups)) * kWire * rank.mix.sparse * experts();
    if (s_.layout.zero_stage == 0) {
      // Ranks that share experts form a separate axis.
      const double sums = replicated_experts() ? others(ranks) : others(s_.expert_groups()) + others(groups);
      return 2 * sums * kWire * (held + table) + of_experts;
    }
    double times = (s_.layout.zero_stage == 1 ? 1 : s_.m) * (held + table);  // reductions, then gathers
    // Layers are gathered for both passes; the head too, where tensor ranks or split passes compute logits again.
    const bool repeats = splits_backward(s_.layout) || s_.t > 1;
    const double again = repeats && rank.has_head ? s_.counts.embedding / s_.t : 0;
    // A head that is the embedding's table is gathered for both.
    const double twice = s_.model.tied && rank.embeds && rank.has_head ? table : 0;
    times += s_.layout.zero_stage < 3 ? gathered + share * table
                                      : s_.m * (2 * gathered + share * (table + again + twice));
    const double replicas = ranks / shards;
    return kWire * (others(shards) * times + 2 * others(replicas) * (held + table) / shards) + of_experts;
  }

  ProgramShape s_;
  const ClusterSpec& cluster_;
  std::vector<LayerCost> kinds_;
};

}  // namespace

ProgramTraffic program_traffic(const TrainingJob& job, const ClusterSpec& cluster) {
  return Traffic(job, cluster).largest();
}

}  // namespace strata::planning
