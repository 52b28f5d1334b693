// Memory of compiled programs by formulas. A rank of a pipeline has pools with an entry for each micro-batch
// that it holds: values from F to B, or from F to I, from F to W and from I to W (program's pools). An entry
// is as large as the largest chunk needs. The other values live within one action, of which the largest
// counts.
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "plan/program_model.h"
#include "plan/program_shape.h"

namespace strata::planning {
namespace {

constexpr double kMaster = 4, kMoments = 8, kGradient = 4;  // bytes of a parameter, in fp32

// Elements of a layer for one token that stay for later actions, and those that live within one.
struct LayerValues {
  double to_input = 0;         // from F to I
  double to_weight = 0;        // from F to W
  double input_to_weight = 0;  // from I to W
  double action = 0;           // the most that live at the same time within an action
};

// One stage of a rank.
struct Chunk {
  LayerMix mix;
  bool embeds = false, has_head = false;
  int32_t before = -1, after = -1;  // ranks of the neighbouring stages, if they are others
  bool receives() const { return before >= 0; }
  bool receives_gradient() const { return after >= 0; }
  double layers() const { return mix.layers(); }
};

class ProgramMemory {
 public:
  ProgramMemory(const TrainingJob& job, const ClusterSpec& cluster)
      : s_(job),
        kinds_(s_.costs_of_kinds(cluster)),
        rows_(s_.tokens / s_.t),
        splits_(splits_backward(s_.layout)),
        dense_(values(static_cast<double>(s_.model.ffn), false)),
        sparse_(s_.model.has_experts() ? values(expert_width(s_.model.moe.shared), true) : LayerValues{}) {
    dense_parameters_ = s_.dense_parameters();
    sparse_parameters_ = s_.attention + static_cast<double>(s_.model.moe.shared) * s_.counts.expert / s_.t +
                         s_.counts.norms + s_.counts.router;
    expert_parameters_ = static_cast<double>(s_.model.moe.experts) * s_.counts.expert /
                         static_cast<double>(s_.layout.expert * s_.layout.expert_tensor);
    table_ = s_.counts.embedding / s_.t;
  }

  MemoryUse fullest() const {
    if (s_.layout.pipeline == 1) return whole_model();
    const auto walked = walk_schedule(s_.layout);
    const auto layout = stages_of(s_.parts(), walked->schedule.stages);
    MemoryUse most;
    for (size_t rank = 0; rank < walked->stages.size(); ++rank) {
      std::vector<Chunk> chunks;
      for (const int32_t stage : walked->stages[rank]) chunks.push_back(chunk_of(*walked, *layout, stage));
      MemoryUse one = of_rank(chunks, walked->live[rank], walked->send_buffers);
      one.last_stage = chunks.back().has_head;
      if (one.total() > most.total()) most = one;
    }
    return most;
  }

 private:
  Chunk chunk_of(const WalkedSchedule& walked, const parallel::StageLayout& layout, int32_t stage) const {
    const parallel::StageParts& parts = layout[static_cast<size_t>(stage)];
    const auto rank_of = [&](int32_t other) {
      return walked.schedule.rank_of_stage[static_cast<size_t>(other)];
    };
    Chunk out;
    out.mix = s_.layers_of(parts);
    out.embeds = parts.has_embedding;
    out.has_head = parts.has_head;
    if (stage > 0 && rank_of(stage - 1) != rank_of(stage)) out.before = rank_of(stage - 1);
    if (stage + 1 < walked.schedule.stages && rank_of(stage + 1) != rank_of(stage))
      out.after = rank_of(stage + 1);
    return out;
  }

  double expert_width(int64_t experts) const { return static_cast<double>(experts * s_.model.moe.width); }

  // Elements for one token of all tensor ranks. `width`: of the dense or the shared MLP.
  LayerValues values(double width, bool sparse) const {
    const double own = 1 / s_.t;  // share of a tensor rank
    const double h = s_.h * own, w = width * own, q = s_.query * own, k = s_.keys * own, v = s_.value * own;
    const double lse = 2 * static_cast<double>(s_.model.heads) * own;  // fp32
    const LatentAttention& latent = s_.model.latent;
    const double latents = static_cast<double>(latent.query_rank + latent.key_value_rank) * own;
    const auto context = static_cast<double>(s_.layout.context);
    // With a context axis queries are apart from the keys and values of all its ranks.
    const double attended = q + context * k;
    const bool selective = s_.layout.recompute == Recompute::kSelective;
    // Norms and their inputs, the attention's output and the residual stream after it, the MLP's gated
    // values.
    const double norms = 2 * h + 2 * latents, gated = w;
    LayerValues out;
    out.to_weight = 2 * h + latents + v + (selective ? 0 : norms - latents + gated);
    out.to_input = attended + lse;
    (selective ? out.to_weight : out.to_input) += mlp_inputs() * w;
    // Gradients of the outputs of matmuls; those that tensor ranks gather are whole.
    const double whole = s_.t > 1 ? 2 * s_.h + 2 * h : 4 * h;
    const double projected = latent.used() ? q + k - rotated() * own : q + k;
    out.input_to_weight = whole + projected + mlp_inputs() * w + 2 * latents;
    if (sparse) add_experts(out, selective);
    out.action = in_action(sparse, h, w, q, k, v);
    return out;
  }
  double rotated() const { return static_cast<double>(s_.model.heads * s_.model.latent.rope_dim); }
  double mlp_inputs() const { return static_cast<double>(s_.model.mlp_matrices() - 1); }

  // Of one expert on one rank.
  double width_of_expert() const {
    return static_cast<double>(s_.model.moe.width) / static_cast<double>(s_.layout.expert_tensor);
  }

  void add_experts(LayerValues& out, bool selective) const {
    const double width = width_of_expert();
    const double rows = s_.expert_rows() * s_.h, pairs = s_.expert_pairs() * width;
    const double logits = 2 * static_cast<double>(s_.model.moe.experts) / s_.t;
    // The router reads fp32.
    out.to_weight += rows + (selective ? 0 : 2 * s_.h / s_.t + pairs);
    out.to_input += logits + mlp_inputs() * pairs + (selective ? 0 : pairs);
    // What I computes again of them stays for W.
    out.input_to_weight += rows + mlp_inputs() * pairs + logits + (selective ? pairs + s_.h / s_.t : 0);
  }

  double in_action(bool sparse, double h, double w, double q, double k, double v) const {
    const double rows = sparse ? s_.expert_rows() * s_.h : 0;
    const double pairs = sparse ? s_.expert_pairs() * width_of_expert() : 0;
    // Rows above the capacity take a second pass, whose values do not stay.
    const double passes = s_.layout.expert > 1 ? 1 : 0;
    const double with_experts = sparse ? s_.h + (1 + 2 * passes) * rows + (2 + 4 * passes) * pairs + h : 0;
    const double context = static_cast<double>(s_.layout.context);
    const bool tensor = s_.t > 1;
    if (s_.layout.recompute == Recompute::kFull) {
      // A layer again, and its gradients.
      const double again = (mlp_inputs() + 2) * w + (tensor ? 3 * s_.h : s_.h) + q + k + v + 2 * h;
      return again + with_experts + rows + (mlp_inputs() + 2) * pairs;
    }
    // Attention: gradients of its inputs and output, and an fp32 scratch of the queries' gradients.
    double most = splits_ ? 2 * q + h + (context > 1 ? q + context * k : 0) : q + context * k + 2 * q + 2 * h;
    if (s_.model.latent.used())
      most = std::max(q + k + 2 * v + v + h, splits_ ? 0 : 2 * (q + k) + h - rotated() / s_.t);
    // The MLP: gradients of its inputs, which tensor ranks reduce.
    most = std::max(most, splits_ ? (tensor ? s_.h + h : w) : tensor ? 2 * s_.h + q + k + h : 0);
    if (s_.layout.recompute == Recompute::kSelective)
      most = std::max(most, splits_ ? s_.h + w : s_.h + 2 * w + h);
    if (!sparse) return most;
    return std::max({most, with_experts, s_.h + (1 + 3 * passes) * rows + 2 * passes * pairs + 3 * h});
  }

  // Bytes of a chunk's entry in a pool.
  double entry(const Chunk& chunk, double LayerValues::*part, double LayerCost::*cost) const {
    const double unit = s_.element * s_.tokens;
    double out = unit * (chunk.mix.dense * dense_.*part + chunk.mix.sparse * sparse_.*part);
    for (size_t i = 0; i < kinds_.size(); ++i)
      out += of_kind(chunk, i) * (kinds_[i].*cost - unit * dense_.*part);
    return out;
  }
  static double of_kind(const Chunk& chunk, size_t kind) {
    return kind < chunk.mix.kinds.size() ? chunk.mix.kinds[kind] : 0;
  }
  // Parameters of the kinds beyond those of dense layers of attention.
  double more_parameters(const Chunk& chunk) const {
    double out = 0;
    for (size_t i = 0; i < kinds_.size(); ++i)
      out += of_kind(chunk, i) * (kinds_[i].parameters - dense_parameters_);
    return out;
  }
  // The most that live within an action of the chunk.
  double action(const Chunk& chunk) const {
    const double unit = s_.element * s_.tokens;
    if (kinds_.empty())
      return unit *
             std::max(chunk.mix.dense > 0 ? dense_.action : 0, chunk.mix.sparse > 0 ? sparse_.action : 0);
    double out = chunk.mix.sparse > 0 ? unit * sparse_.action : 0;
    for (size_t i = 0; i < kinds_.size(); ++i)
      if (of_kind(chunk, i) > 0) out = std::max(out, kinds_[i].action);
    return out;
  }

  MemoryUse persistent(const std::vector<Chunk>& chunks) const {
    double dense = 0, experts = 0;
    bool embeds = false, has_head = false;
    for (const Chunk& chunk : chunks) {
      dense += chunk.mix.dense * dense_parameters_ + chunk.mix.sparse * sparse_parameters_ +
               more_parameters(chunk);
      experts += chunk.mix.sparse * expert_parameters_;
      embeds = embeds || chunk.embeds;
      has_head = has_head || chunk.has_head;
    }
    const double tables = embeds && has_head && !s_.model.tied ? 2 * table_ : embeds || has_head ? table_ : 0;
    const auto bytes = [&](double each, int stage) {
      const double shards = s_.layout.zero_stage >= stage ? static_cast<double>(s_.layout.shards) : 1;
      return each * ((dense + tables) / shards + experts / s_.expert_shards(stage));
    };
    MemoryUse out;
    const double multiplied = dense + experts + (has_head ? table_ : 0);
    // ZeRO-3 keeps whole copies only of experts that it does not shard.
    if (s_.element == 2)
      out.weights = 2 * (s_.layout.zero_stage < 3 ? multiplied : s_.expert_shards(3) > 1 ? 0 : experts);
    if (s_.layout.zero_stage > 0) {
      // Whole rows of the embedding are looked up.
      if (embeds && !(has_head && s_.model.tied) && s_.layout.zero_stage < 3)
        out.weights += s_.element * table_;
      // A rank gathers from copies of its shards.
      if (s_.element == 2) out.weights += bytes(2, 1) - (s_.expert_shards(1) > 1 ? 0 : 2 * experts);
    }
    out.gradients = bytes(kGradient, 2);
    out.optimizer = bytes(kMaster + kMoments, 1);
    return out;
  }

  double sharded(const Chunk& chunk) const {
    const double experts = s_.expert_shards(1) > 1 ? expert_parameters_ : 0;
    return chunk.mix.dense * dense_parameters_ + chunk.mix.sparse * (sparse_parameters_ + experts) +
           more_parameters(chunk);
  }
  double largest_layer() const {
    const double experts = s_.expert_shards(1) > 1 ? expert_parameters_ : 0;
    double most = s_.model.has_experts() ? std::max(dense_parameters_, sparse_parameters_ + experts)
                                         : dense_parameters_;
    if (kinds_.empty()) return most;
    most = 0;
    for (const LayerOfKind& one : s_.model.each) {
      const double more = one.has_experts ? sparse_parameters_ + experts - dense_parameters_ : 0;
      most = std::max(most, kinds_[static_cast<size_t>(one.kind)].parameters + more);
    }
    return most;
  }

  // Whole gradients of a micro-batch until their shards are summed, and the weights that ZeRO-3 gathers.
  // Where a layer waits for other exchanges, the sums that started before are done.
  double gathered_in_action(const Chunk& chunk) const {
    if (s_.layout.zero_stage < 2) return 0;
    const bool waits =
        s_.t > 1 || (!splits_ && (s_.layout.context > 1 || (chunk.mix.sparse > 0 && s_.layout.expert > 1)));
    const double table = chunk.embeds || (splits_ && chunk.has_head) ? table_ : 0;
    if (!waits && (splits_ || s_.layout.zero_stage == 2)) return 4 * (sharded(chunk) + table);
    const double layers = std::min(chunk.layers(), waits ? 1.0 : 2.0);
    const double gradients = 4 * (layers * largest_layer() + table);
    if (s_.layout.zero_stage < 3) return gradients;
    return std::max(gradients, largest_layer() * 2 * s_.element);
  }

  // In fp32, whole, after an update: they take the place of activations.
  double gathered_after_update(const std::vector<Chunk>& chunks) const {
    if (s_.element == 2 || (s_.layout.zero_stage != 1 && s_.layout.zero_stage != 2)) return 0;
    double out = 0;
    for (const Chunk& chunk : chunks) out += 4 * (sharded(chunk) + (chunk.has_head ? table_ : 0));
    return out;
  }

  MemoryUse of_rank(const std::vector<Chunk>& chunks, const parallel::LiveCounts& live, int32_t sends) const {
    MemoryUse out = persistent(chunks);
    const double stream = s_.element * rows_ * s_.h;
    double input = 0, weight = 0, between = 0, working = 0, messages = 0;
    std::set<int32_t> before, after;
    for (const Chunk& chunk : chunks) {
      const double first = chunk.receives() ? stream : 0;
      double to_input = entry(chunk, &LayerValues::to_input, &LayerCost::to_input);
      double to_weight = entry(chunk, &LayerValues::to_weight, &LayerCost::to_weight) - first;
      double of_gradients = entry(chunk, &LayerValues::input_to_weight, &LayerCost::input_to_weight);
      if (s_.t == 1 && chunk.receives_gradient()) of_gradients -= stream;
      if (chunk.has_head) {
        to_weight += 2 * stream;
        of_gradients += stream;
        // Gathered for I, the head's copy stays for W.
        if (s_.layout.zero_stage >= 3) of_gradients += s_.element * table_;
      }
      if (s_.layout.recompute == Recompute::kFull && kinds_.empty()) {
        to_input = 0;
        to_weight = std::max(0.0, 2 * stream * chunk.layers() - 2 * first);
      }
      input = std::max(input, splits_ ? to_input : 0);
      weight = std::max(weight, splits_ ? to_weight : to_input + to_weight);
      between = std::max(between, splits_ ? of_gradients : 0);
      working = std::max(working, action(chunk) + gathered_in_action(chunk));
      if (chunk.receives()) before.insert(chunk.before);
      if (chunk.receives_gradient()) after.insert(chunk.after);
    }
    messages = sends * static_cast<double>(before.size() + after.size());
    if (!before.empty()) messages += live.forward_to_weight_grad;
    if (!after.empty()) messages += splits_ && s_.t == 1 ? live.input_to_weight_grad : 1;
    out.activations = live.forward_to_input_grad * input + live.forward_to_weight_grad * weight +
                      live.input_to_weight_grad * between;
    out.working = working + messages * stream;
    const double gathered = gathered_after_update(chunks);
    out.working += std::max(0.0, gathered - out.activations - out.working);
    return out;
  }

  // Without a pipeline, at the beginning of the backward pass: no pools, one micro-batch.
  MemoryUse whole_model() const {
    const Chunk all{.mix = s_.all_layers(), .embeds = true, .has_head = true};
    MemoryUse out = persistent({all});
    const double unit = s_.element * s_.tokens, h = s_.h / s_.t;
    const bool full = s_.layout.recompute == Recompute::kFull;
    out.activations = full ? unit * 2 * h * all.layers()
                           : entry(all, &LayerValues::to_input, &LayerCost::to_input) +
                                 entry(all, &LayerValues::to_weight, &LayerCost::to_weight);
    const double width =
        all.mix.dense > 0 ? static_cast<double>(s_.model.ffn) : expert_width(s_.model.moe.shared);
    double working = unit * (2 * h + width / s_.t + (s_.t > 1 ? 2 * s_.h : 0));
    if (full || all.mix.sparse > 0) working = std::max(working, action(all));
    if (!kinds_.empty()) {
      const Peak peak = peak_of_kinds();
      out.activations = peak.kept;
      working = peak.working;
    }
    if (s_.layout.zero_stage >= 2) working += 4 * (table_ + s_.h * width / s_.t);
    // A layer that is computed again is gathered twice while its gradients wait for their sums; exchanges of other axes
    // let these end first.
    const bool selects = s_.layout.recompute == Recompute::kSelective;
    const double repeated = s_.t > 1 ? 2 : s_.layout.context > 1 ? 5 : 8.5;
    if (s_.layout.zero_stage >= 3) working += (full ? repeated : selects ? 9 : 4) * largest_layer();
    // Keys and values while text is generated, and the weights that are gathered then.
    const double caches = s_.model.latent.used() ? 0
                                                 : s_.element * all.layers() * 2 * s_.keys / s_.t *
                                                       static_cast<double>(s_.job.sequence) / 2;
    out.working = working;
    const double generating = gathered_after_update({all}) + caches;
    out.working += std::max(0.0, generating - out.activations - working);
    return out;
  }

  // Where backward frees what each layer has kept while it works on it.
  struct Peak {
    double kept = 0, working = 0;
  };
  Peak peak_of_kinds() const {
    const double unit = s_.element * s_.tokens;
    const auto kept_by = [](const LayerValues& values) { return values.to_input + values.to_weight; };
    double kept = 0, most = 0;
    for (const LayerOfKind& one : s_.model.each) {
      const LayerCost& cost = kinds_[static_cast<size_t>(one.kind)];
      kept += cost.kept;
      double working = cost.working;
      if (one.has_experts) {
        kept += unit * (kept_by(sparse_) - kept_by(dense_));
        working += unit * std::max(0.0, sparse_.action - dense_.action);
      }
      most = std::max(most, kept + working);
    }
    return {kept, most - kept};
  }

  ProgramShape s_;
  std::vector<LayerCost> kinds_;
  double rows_;
  bool splits_;
  LayerValues dense_, sparse_;
  double dense_parameters_ = 0, sparse_parameters_ = 0, expert_parameters_ = 0, table_ = 0;
};

}  // namespace

MemoryUse program_memory(const TrainingJob& job, const ClusterSpec& cluster) {
  return ProgramMemory(job, cluster).fullest();
}

}  // namespace strata::planning
