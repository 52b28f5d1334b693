#include "plan/step_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/group_network.h"

namespace strata::planning {
namespace {

constexpr double kElementBytes = 2;         // bytes of an element
constexpr double kMostOfThePeak = 0.97;     // no GEMM exceeds it
constexpr double kBackwardAttention = 2.5;  // of the forward pass (FlashAttention-2: five matmuls for two)
constexpr double kWithoutFamily = 0.4;      // fraction of the peak that attention reaches
constexpr double kCollectiveStart = 20e-6;  // s of one collective

// Times of one layer, for one micro-batch on one rank.
struct LayerTime {
  double matmuls = 0, attention = 0, elementwise = 0;
  LayerTime operator*(double factor) const {
    return {matmuls * factor, attention * factor, elementwise * factor};
  }
  LayerTime operator+(const LayerTime& other) const {
    return {matmuls + other.matmuls, attention + other.attention, elementwise + other.elementwise};
  }
  double sum() const { return matmuls + attention + elementwise; }
};

class StepModel {
 public:
  StepModel(const TrainingJob& job, const StackProfile& stack, const Profiles& profiles,
            const ClusterSpec& cluster)
      : job_(job),
        shape_(job.shape),
        layout_(job.layout),
        stack_(stack),
        profiles_(profiles),
        chip_(cluster.chip),
        family_(profiles.family_of(cluster.chip.name)),
        network_(cluster),
        tensor_(static_cast<double>(job.layout.tensor)),
        tokens_(static_cast<double>(job.layout.micro_batch * job.sequence) /
                static_cast<double>(job.layout.context)),
        layers_(static_cast<double>(job.shape.layers) / static_cast<double>(job.layout.pipeline)),
        memory_rate_(cluster.chip.memory_bandwidth.value * cluster.chip.memory_achievable.value) {}

  StepTime run() const {
    const double m = layout_.micro_batches;
    const double rounds = m * layers_;
    const LayerTime forward = layer_forward();
    const LayerTime backward = {2 * forward.matmuls, kBackwardAttention * forward.attention,
                                2 * forward.elementwise};
    const double repeated = recomputed(forward);
    const double context = context_seconds(forward.attention * (1 + kBackwardAttention));
    const double loss = loss_seconds();
    StepTime out;
    out.matmuls = rounds * (forward.matmuls + backward.matmuls);
    out.attention = rounds * (forward.attention + backward.attention);
    out.elementwise = rounds * (forward.elementwise + backward.elementwise);
    out.recompute = rounds * repeated;
    out.loss = m * loss;
    out.tensor = rounds * tensor_seconds();
    out.context = rounds * context;
    out.expert = rounds * expert_seconds();
    const double stage = (out.matmuls + out.attention + out.elementwise + out.recompute + out.tensor +
                          out.context + out.expert) /
                         m;
    out.bubble = bubble_units(layout_) * (stage + loss / static_cast<double>(layout_.pipeline));
    out.pipeline = m * pipeline_seconds();
    add_data_axis(out, m * (stage + loss));
    out.fixed = stack_.fixed.value;
    return out;
  }

 private:
  // Two dtypes: the matmuls of layers, and 16 bit for attention and the head.
  double rate(Precision dtype) const {
    Precision asked = dtype;
    double peak = chip_.peak_of(asked).value;
    // Recipes with fp4 keep a part of their matmuls in 8 bits: no more than twice the fp8 rate.
    if (asked == Precision::kFp4) peak = std::min(peak, 2 * chip_.peak_of(Precision::kFp8).value);
    if (peak <= 0 && asked == Precision::kBf16) peak = chip_.peak_of(asked = Precision::kFp16).value;
    if (peak <= 0 && asked == Precision::kBf16) peak = chip_.peak_of(asked = Precision::kFp32).value;
    if (peak <= 0)
      throw ConfigError("[chip {}] found no peak for {}, expected a dtype that the chip has", chip_.name,
                        to_string(dtype));
    const double family = family_ ? family_->gemm.value : 1;
    return peak *
           std::min(kMostOfThePeak, chip_.achievable_of(asked).value * family * stack_.efficiency.value);
  }
  Precision wide() const {
    const bool narrow = job_.precision == Precision::kFp8 || job_.precision == Precision::kFp4;
    return narrow ? Precision::kBf16 : job_.precision;
  }

  // Forward matmul [rows, inner] x [inner, columns], of `weights` different weight matrices.
  double matmul(double rows, double columns, double inner, Precision dtype, double weights = 1) const {
    const double bytes = kElementBytes * (rows * inner + weights * inner * columns + rows * columns);
    return 2 * rows * columns * inner / rate(dtype) + bytes / memory_rate_;
  }

  double mlp(double rows, double width, double weights) const {
    const auto h = static_cast<double>(shape_.hidden);
    const auto inputs = static_cast<double>(shape_.mlp_matrices() - 1);
    return matmul(rows, inputs * width / tensor_, h, job_.precision, weights) +
           matmul(rows, h, width / tensor_, job_.precision, weights);
  }

  double attention_matmuls() const {
    const auto h = static_cast<double>(shape_.hidden);
    if (shape_.latent.used()) {
      // By parameters: many thin matmuls.
      const double columns = count_parameters(shape_).attention / h / tensor_;
      return matmul(tokens_, columns, h, job_.precision);
    }
    const auto queries = static_cast<double>(shape_.heads * shape_.head_dim);
    const auto keys = static_cast<double>(2 * shape_.kv_heads * shape_.head_dim);
    return matmul(tokens_, (queries + keys) / tensor_, h, job_.precision) +
           matmul(tokens_, h, queries / tensor_, job_.precision);
  }

  // Scores and weighted sum, causal.
  double attention_core() const {
    const auto s = static_cast<double>(job_.sequence);
    const auto heads = static_cast<double>(shape_.heads);
    const double both =
        shape_.latent.used()
            ? static_cast<double>(shape_.latent.nope_dim + shape_.latent.rope_dim + shape_.latent.value_dim)
            : static_cast<double>(2 * shape_.head_dim);
    const double flops = 2 * s * tokens_ * heads * both / tensor_;
    if (stack_.attention == AttentionKernel::kScores) {
      // All scores; written and read by five element-wise operations of 2 bytes or 1 (5 a s²: 2205.05198).
      return flops / rate(wide()) + 2 * 5 * heads * s * tokens_ / tensor_ / memory_rate_;
    }
    double fraction = kWithoutFamily;
    if (family_) fraction = family_->attention[static_cast<size_t>(stack_.attention)] * power_share();
    return flops / 2 / (chip_.peak_of(peak_dtype()).value * fraction);
  }
  Precision peak_dtype() const {
    if (chip_.peak_of(Precision::kBf16).value > 0) return Precision::kBf16;
    return chip_.peak_of(Precision::kFp16).value > 0 ? Precision::kFp16 : Precision::kFp32;
  }
  // Chips of a family with less or more power, by their GEMMs relative to the family's first chip, whose
  // fraction the profile has: reference_ of the same dtype.
  double power_share() const { return chip_.achievable_of(Precision::kBf16).value / family_->reference; }

  double elementwise(double width) const {
    const auto h = static_cast<double>(shape_.hidden);
    const double norms = layout_.sequence_parallel ? 20 * h / tensor_ : 10 * h + 10 * h / tensor_;
    double bytes = norms + 2 * width * static_cast<double>(shape_.mlp_matrices() - 1) / tensor_;
    if (job_.precision != wide()) {
      // Casts of matmul inputs, also transposed.
      const auto heads = static_cast<double>((shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim);
      bytes += 1.5 * (4 * h + heads + width) / tensor_;
    }
    return tokens_ * bytes * profiles_.elementwise / memory_rate_;
  }

  LayerTime dense_layer() const {
    const auto width = static_cast<double>(shape_.ffn);
    return {.matmuls = attention_matmuls() + mlp(tokens_, width, 1),
            .attention = attention_core(),
            .elementwise = elementwise(width)};
  }

  LayerTime expert_layer() const {
    const ExpertShape& moe = shape_.moe;
    const auto width = static_cast<double>(moe.width);
    const auto k = static_cast<double>(moe.per_token);
    const auto shared = static_cast<double>(moe.shared);
    const double local =
        std::max(1.0, static_cast<double>(moe.experts) / static_cast<double>(layout_.expert));
    LayerTime out;
    out.matmuls = attention_matmuls() + mlp(tokens_ * k * profiles_.imbalance, width, local);
    if (shared > 0) out.matmuls += mlp(tokens_, shared * width, 1);
    out.attention = attention_core();
    // Permuting the tokens to their experts and back: two reads and two writes.
    const double permuted = 8 * tokens_ * k * static_cast<double>(shape_.hidden) / tensor_;
    out.elementwise = elementwise(width * (k + shared)) + permuted / memory_rate_;
    return out;
  }

  // The mean layer of the model.
  LayerTime layer_forward() const {
    const double sparse = static_cast<double>(shape_.moe_layers()) / static_cast<double>(shape_.layers);
    if (sparse <= 0) return dense_layer();
    if (sparse >= 1) return expert_layer();
    return expert_layer() * sparse + dense_layer() * (1 - sparse);
  }

  double recomputed(const LayerTime& forward) const {
    switch (layout_.recompute) {
      case Recompute::kNone:
        return 0;
      case Recompute::kSelective:
        return stack_.selective_matmuls * forward.matmuls + stack_.selective_attention * forward.attention +
               stack_.selective_elementwise * forward.elementwise;
      case Recompute::kFull:
      case Recompute::kUnspecified:
        return forward.sum();
    }
    return 0;
  }

  // Four all-reduces (or four gathers and four scatters) a layer; two more if the forward pass is repeated.
  double tensor_seconds() const {
    if (layout_.tensor <= 1) return 0;
    const double bytes = tokens_ * static_cast<double>(shape_.hidden) * kElementBytes;
    const double times = layout_.recompute == Recompute::kFull ? 6 : 4;
    const Group group{.ranks = layout_.tensor, .stride = 1};
    // Only exchanges within a domain are short enough to overlap with parts of a matmul.
    const double exposed = network_.inside(group) ? stack_.tensor_exposed : 1;
    return exposed * times * (2 * network_.gather_seconds(group, bytes) + kCollectiveStart);
  }

  // Keys and values of the other ranks, forward once and backward twice; hidden by attention.
  double context_seconds(double attention) const {
    if (layout_.context <= 1) return 0;
    const auto keys = static_cast<double>(2 * shape_.kv_heads * shape_.head_dim) / tensor_;
    const double bytes = tokens_ * static_cast<double>(layout_.context) * std::max(1.0, keys) * kElementBytes;
    const Group group{.ranks = layout_.context, .stride = layout_.tensor};
    return std::max(0.0, 3 * network_.gather_seconds(group, bytes) - attention);
  }

  // Four all-to-alls of a layer with experts. Where the router limits the nodes of a token, rows are sent once to each
  // of the other domains and forwarded there once to each rank, at the same time (DeepEP); else once to each expert.
  double expert_seconds() const {
    if (!shape_.has_experts() || layout_.expert <= 1) return 0;
    const auto ranks = static_cast<double>(layout_.expert * layout_.expert_tensor);
    const auto domain = static_cast<double>(network_.domain());
    const double sparse = static_cast<double>(shape_.moe_layers()) / static_cast<double>(shape_.layers);
    const double beyond = std::max(0.0, (ranks - domain) / ranks);
    const auto k = static_cast<double>(shape_.moe.per_token);
    const double token = tokens_ * static_cast<double>(shape_.hidden) * kElementBytes / tensor_;
    double once = 0;
    if (shape_.moe.node_limit > 0) {
      const double domains = std::max(1.0, ranks / domain);
      const double inside = std::min(ranks, domain);
      const double reached = std::min(static_cast<double>(shape_.moe.node_limit), destinations(domains));
      const double far = reached * (domains - 1) / domains;
      const double near = destinations(static_cast<double>(layout_.expert)) * (inside - 1) / inside;
      once = token * std::max(near / network_.inner_rate(), far / network_.outer_rate());
    } else {
      const double own = 1 / static_cast<double>(layout_.expert);
      const double near = k * std::max(0.0, 1 - beyond - own);
      once = token * (near / network_.inner_rate() + k * beyond / network_.outer_rate());
    }
    return sparse * 4 * (once + 2 * kCollectiveStart);
  }

  // Expected number of `groups` of experts that a token reaches with uniform routing: g (1 - C(E - E/g, K)/C(E, K)).
  double destinations(double groups) const {
    const auto experts = static_cast<double>(shape_.moe.experts);
    double none = 1;  // of a group's experts
    for (double chosen = 0; chosen < static_cast<double>(shape_.moe.per_token); ++chosen)
      none *= std::max(0.0, (experts - experts / groups - chosen) / (experts - chosen));
    return groups * (1 - none);
  }

  double pipeline_seconds() const {
    if (layout_.pipeline <= 1) return 0;
    const double bytes = 2 * tokens_ * static_cast<double>(shape_.hidden) * kElementBytes / tensor_;
    const bool near = network_.inside({.ranks = layout_.pipeline, .stride = layout_.tensor});
    return stack_.pipeline_exposed * static_cast<double>(layout_.virtual_stages) * bytes /
           (near ? network_.inner_rate() : network_.outer_rate());
  }

  // The head's forward and backward matmuls, and its logits, read and written twice in fp32.
  double loss_seconds() const {
    const double columns = static_cast<double>(shape_.vocab) / tensor_;
    return 3 * matmul(tokens_, columns, static_cast<double>(shape_.hidden), wide()) +
           16 * tokens_ * columns / memory_rate_;
  }

  // `computed` s hide gathers of ZeRO-3; the backward pass hides a part of the other reductions.
  void add_data_axis(StepTime& out, double computed) const {
    const double ends = layout_.pipeline > 1 || shape_.tied ? 1 : 2;
    const StageParameters held = stage_parameters(shape_, layout_, layers_, ends);
    const double all = held.dense + held.experts;
    const int64_t stride = layout_.tensor;
    const Group group{.ranks = layout_.replicas(), .stride = stride};
    const Group shards{.ranks = layout_.shards, .stride = stride};
    if (layout_.zero_stage >= 3) {
      // Stacks that gather on demand release a layer after its recomputation and gather it again.
      const bool third = layout_.recompute == Recompute::kFull && !stack_.overlaps_gathers;
      const double gathered = third ? 3 : 2;
      const double messages = layers_ * (gathered * static_cast<double>(stack_.gather_messages) +
                                         static_cast<double>(stack_.reduce_messages));
      const double gathers = gathered * network_.gather_seconds(shards, all * kElementBytes) +
                             network_.gather_seconds(shards, all * stack_.reduce_bytes);
      const double sent = layout_.micro_batches * (gathers + messages * network_.ring_latency(shards));
      const double hidden = stack_.overlaps_gathers ? std::min(sent, computed) : 0;
      out.data = sent - hidden + stack_.data_exposed * hidden;
      if (layout_.shards < group.ranks) {
        // Replicas of the shards all-reduce their gradients.
        const Group replicas{.ranks = group.ranks / layout_.shards, .stride = stride * layout_.shards};
        const double bytes = all * stack_.reduce_bytes / static_cast<double>(layout_.shards);
        out.data += stack_.data_exposed * 2 * network_.gather_seconds(replicas, bytes);
      }
    } else if (group.ranks > 1) {
      const double messages = layers_ * static_cast<double>(stack_.reduce_messages);
      const bool scatters = layout_.zero_stage > 0;
      const double bytes = all * (scatters ? stack_.reduce_bytes + kElementBytes : 2 * stack_.reduce_bytes);
      const double latency = scatters ? 2 * network_.ring_latency(group) : network_.tree_latency(group);
      out.data = stack_.data_exposed * (network_.gather_seconds(group, bytes) + messages * latency);
    }
    const double shared = layout_.zero_stage > 0 ? static_cast<double>(layout_.shards) : 1;
    const double state = 2 * stack_.optimizer_bytes + stack_.gradient_bytes + 2 * stack_.weight_bytes;
    out.optimizer = all * state / shared / memory_rate_;
  }

  const TrainingJob& job_;
  const ModelShape& shape_;
  const Layout& layout_;
  const StackProfile& stack_;
  const Profiles& profiles_;
  const ChipSpec& chip_;
  const ChipFamily* family_;
  GroupNetwork network_;
  double tensor_;
  double tokens_;  // of a micro-batch on one rank of the context axis
  double layers_;  // of one pipeline rank
  double memory_rate_;
};

}  // namespace

StageParameters stage_parameters(const ModelShape& shape, const Layout& layout, double layers, double ends) {
  const ParameterCounts counts = count_parameters(shape);
  const double sparse = static_cast<double>(shape.moe_layers()) / static_cast<double>(shape.layers);
  const auto tensor = static_cast<double>(layout.tensor);
  const double shared = static_cast<double>(shape.moe.shared) * counts.expert;
  StageParameters out;
  out.dense = layers * ((counts.attention + (1 - sparse) * counts.mlp + sparse * shared) / tensor +
                        counts.norms + sparse * counts.router) +
              ends * counts.embedding / tensor;
  out.experts = layers * sparse * static_cast<double>(shape.moe.experts) * counts.expert /
                static_cast<double>(layout.expert * layout.expert_tensor);
  return out;
}

StepTime step_time(const TrainingJob& job, const StackProfile& stack, const Profiles& profiles,
                   const ClusterSpec& cluster) {
  return StepModel(job, stack, profiles, cluster).run();
}

}  // namespace strata::planning
