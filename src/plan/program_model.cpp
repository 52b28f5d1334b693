#include "plan/program_model.h"

#include <algorithm>
#include <cmath>

namespace strata::planning {
namespace {

using hardware::Exchange;
using hardware::exchange_seconds;
using hardware::Group;

// Shares of exchanges for which compute waits, and calls of a layer, from price.h for compiled
// programs of Llama 8B to 405B on up to 1,024 H100 (2026-11-26). Of the ten exchanges of tensor ranks in a
// layer, two gather inputs again, mostly while weight gradients are computed.
constexpr double kTensorWaits = 8.5;
constexpr double kReduceWaits = 0.5;        // of the last micro-batch's gradients
constexpr double kGatherWaits = 0.15;       // of ZeRO-3 gathers and reductions, started a layer ahead
constexpr double kBackwardAttention = 2.5;  // FlashAttention-2: five matmuls for two
// Parameters that a layer registers, each with separate statistics; small kernels cost their launch.
constexpr double kSmallKernels = 25, kSmallKernelsEach = 10;
// Every token of a device goes to the rank of its expert with a margin (parallel.expert_capacity).
constexpr double kExpertCapacity = 1.25;
// Beyond a host rows move in two steps, and those above the capacity in another pass.
constexpr double kHostExchanges = 1.5;
constexpr double kHeldUp = 0.5;             // of a stage's reductions, with experts in a pipeline
constexpr double kGatherWaitsTensor = 0.9;  // as kGatherWaits, where exchanges of tensor ranks come first

class Programs {
 public:
  Programs(const TrainingJob& job, const ClusterSpec& cluster)
      : job_(job),
        shape_(job.shape),
        layout_(job.layout),
        links_(cluster.links),
        counts_(count_parameters(job.shape)),
        t_(static_cast<double>(layout_.tensor)),
        p_(static_cast<double>(layout_.pipeline)),
        m_(layout_.micro_batches),
        tokens_(static_cast<double>(layout_.micro_batch * job.sequence) /
                static_cast<double>(layout_.context)),
        h_(static_cast<double>(shape_.hidden)),
        sparse_(static_cast<double>(shape_.moe_layers()) / static_cast<double>(shape_.layers)) {
    const ChipSpec& chip = cluster.chip;
    rate_ = chip.peak_of(job.precision).value * chip.achievable_of(job.precision).value;
    // Attention and the loss stay in bf16 where matmuls of the layers are in fp8 or fp4.
    const bool narrow = job.precision == Precision::kFp8 || job.precision == Precision::kFp4;
    const Precision wide = narrow ? Precision::kBf16 : job.precision;
    wide_rate_ = chip.peak_of(wide).value * chip.achievable_of(wide).value;
    element_ = job.precision == Precision::kFp32 ? 4 : 2;
    memory_rate_ = chip.memory_bandwidth.value * chip.memory_achievable.value;
    launch_ = chip.launch.value;
    if (shape_.latent.used()) {
      const LatentAttention& latent = shape_.latent;
      const auto a = static_cast<double>(shape_.heads);
      query_ = a * static_cast<double>(latent.nope_dim + latent.rope_dim);
      value_ = a * static_cast<double>(latent.value_dim);
      keys_ = query_ + value_;
    } else {
      query_ = value_ = static_cast<double>(shape_.heads * shape_.head_dim);
      keys_ = static_cast<double>(2 * shape_.kv_heads * shape_.head_dim);
    }
    width_ = (1 - sparse_) * static_cast<double>(shape_.ffn) +
             sparse_ * static_cast<double>(shape_.moe.width * (shape_.moe.per_token + shape_.moe.shared));
    load_ = load();
    // The most loaded stages have no dense layers.
    stage_sparse_ = layout_.pipeline > 1 && sparse_ > 0 ? 1 : sparse_;
  }

  StageLoad load() const {
    const double layer = layer_flops();
    const double loss = 6 * counts_.head / layer;
    const auto layers = static_cast<double>(shape_.layers);
    if (layout_.pipeline == 1) return {layers, loss};
    return {stage_cost(p_, loss), loss};
  }

  MemoryUse memory() const {
    const bool both = layout_.pipeline == 1;
    const MemoryUse first = stage_memory(first_layers(), both && !shape_.tied ? 2 : 1, sparse_, 1);
    if (both) return first;
    // The next stage has no embedding, but often one layer more, and with experts no dense layers.
    const double flight = layout_.schedule == PipelineSchedule::k1F1B ? (p_ - 1) / p_ : 1;
    const MemoryUse next = stage_memory(std::floor(load_.layers), 0, stage_sparse_, flight);
    const MemoryUse most = first.total() >= next.total() ? first : next;
    if (layout_.schedule != PipelineSchedule::kZeroBubble) return most;
    // On the last stage the gradients of logits wait for W, too.
    const double rest =
        static_cast<double>(shape_.layers) - first_layers() - (p_ - 2) * std::floor(load_.layers);
    MemoryUse last = stage_memory(std::max(1.0, rest), 1, stage_sparse_, 1);
    last.logits = 6 * element_ * p_ * tokens_ / t_ * static_cast<double>(shape_.vocab);
    last.last_stage = true;
    return most.total() >= last.total() ? most : last;
  }

  StepTime time() const {
    const double layers = load_.layers;
    const double rounds = m_ * layers;
    const double matmul = (layer_flops() / 3 - attention_flops()) / t_ / rate_;
    const double scores = attention_flops() / t_ / wide_rate_;
    const double elements = elementwise_bytes() / memory_rate_;
    const double loss = (t_ > 1 ? 8 : 6) * counts_.head * tokens_ / t_ / wide_rate_;
    StepTime out;
    out.matmuls = rounds * 3 * matmul;
    out.attention = rounds * (1 + kBackwardAttention) * scores;
    out.elementwise = rounds * elements;
    out.recompute = rounds * repeated(matmul, scores);
    out.loss = layout_.pipeline == 1 ? m_ * loss : 0;
    const double small = kSmallKernels * layers + kSmallKernelsEach * rounds;
    out.fixed = small * launch_;
    out.tensor = rounds * tensor_seconds();
    out.context = rounds * context_seconds();
    out.expert = rounds * expert_seconds();
    const double stage = (out.matmuls + out.attention + out.elementwise + out.recompute + out.tensor +
                          out.context + out.expert) /
                         m_;
    // A split backward pass leaves W for later: the bubble is that of F, I and W.
    const double f = (matmul + scores + elements / 3) * layers;
    const double w = matmul * layers;
    const double i = stage - f - w;
    out.bubble = bubble(f, i, w, stage);
    out.pipeline = m_ * pipeline_seconds();
    add_data(out, layers);
    return out;
  }

 private:
  // `ends`: tables of the vocabulary; `flight`: micro-batches in flight relative to the first stage.
  MemoryUse stage_memory(double layers, double ends, double sparse, double flight) const {
    const bool both = layout_.pipeline == 1;
    const StageParameters held = parameters(layers, ends, sparse);
    const double table = ends > 0 ? counts_.embedding / t_ : 0;
    const auto shards = static_cast<double>(layout_.shards);
    const auto split = [&](int stage) { return layout_.zero_stage >= stage ? shards : 1; };
    // The ranks that hold an expert are replicas, over which ZeRO does not shard.
    const auto bytes = [&](double each, int stage) {
      return each * (held.dense / split(stage) + held.experts / expert_shards(stage));
    };
    MemoryUse out;
    const bool copies = element_ == 2;
    const double multiplied = held.dense + held.experts - table;
    if (layout_.zero_stage < 3 && copies) out.weights = 2 * multiplied;
    if (layout_.zero_stage > 0 && layout_.zero_stage < 3) out.weights += 4 * table;
    out.gradients = bytes(4, 2);
    out.optimizer = bytes(12, 1);
    out.activations = kept(layers, sparse) * flight;
    out.working = working(held, layers);
    // Weights that are gathered in fp32 after an update share the memory of activations.
    const double sharded = held.dense + (expert_shards(1) > 1 ? held.experts : 0);
    // Gradients of a micro-batch are whole until they are summed.
    if (layout_.zero_stage == 2 && !both) out.working += 4 * sharded;
    if (layout_.zero_stage == 1 || layout_.zero_stage == 2) {
      const double gathered = 4 * (sharded - table) + caches(layers);
      const double gradients = layout_.zero_stage == 2 && both ? 4 * sharded : 0;
      const double other = std::max(gathered, gradients) - out.activations;
      out.working = std::max(out.working, other);
    }
    return out;
  }

  StageParameters parameters(double layers, double ends, double sparse) const {
    if (sparse == sparse_) return stage_parameters(shape_, layout_, layers, ends);
    const double shared = static_cast<double>(shape_.moe.shared) * counts_.expert;
    StageParameters out;
    out.dense = layers * ((counts_.attention + shared) / t_ + counts_.norms + counts_.router) +
                ends * counts_.embedding / t_;
    out.experts = layers * static_cast<double>(shape_.moe.experts) * counts_.expert /
                  static_cast<double>(layout_.expert * layout_.expert_tensor);
    return out;
  }

  // The smallest maximum over stages: whole layers on each, fewer together with the head.
  double stage_cost(double stages, double loss) const {
    const auto layers = static_cast<double>(shape_.layers);
    const auto holds = [&](double cost) {
      return (stages - 1) * std::floor(cost) + std::max(0.0, std::floor(cost - loss)) >= layers;
    };
    for (double cost = std::max(1.0, std::floor(layers / stages));; ++cost) {
      if (holds(cost)) return cost;
    }
  }

  // Layers of the first rank. Where the most loaded stages could hold more, it has one fewer: the embedding costs, too.
  double first_layers() const {
    const auto layers = static_cast<double>(shape_.layers);
    if (layout_.pipeline == 1) return layers;
    const bool both_ends = layout_.schedule == PipelineSchedule::kZeroBubbleV ||
                           layout_.schedule == PipelineSchedule::kVHalf ||
                           layout_.schedule == PipelineSchedule::kVMin;
    const double stages = both_ends ? 2 * p_ : p_;
    const double cost = both_ends ? stage_cost(stages, load_.loss) : load_.layers;
    const double with_head = std::max(0.0, std::floor(cost - load_.loss));
    const bool spare = (stages - 1) * std::floor(cost) + with_head > layers;
    return std::floor(cost) - (spare && cost > 1 ? 1 : 0) + (both_ends ? with_head : 0);
  }

  double expert_shards(int stage) const {
    if (layout_.zero_stage < stage || layout_.expert <= 1)
      return layout_.zero_stage < stage ? 1 : static_cast<double>(layout_.shards);
    const double inner = static_cast<double>(layout_.context * layout_.tensor);
    const double used = std::max(1.0, static_cast<double>(layout_.expert) / inner);
    return std::max(1.0, static_cast<double>(layout_.shards) / used);
  }

  // FLOPs of a layer for one token, forward and backward, with half of the scores.
  double layer_flops() const {
    const double active =
        counts_.attention + (1 - sparse_) * counts_.mlp +
        sparse_ *
            (counts_.router + static_cast<double>(shape_.moe.per_token + shape_.moe.shared) * counts_.expert);
    return tokens_ * (6 * active + 3 * static_cast<double>(job_.sequence) * (query_ + value_));
  }
  // Of one forward pass of the layer's micro-batch; causal kernels skip half.
  double attention_flops() const { return tokens_ * static_cast<double>(job_.sequence) * (query_ + value_); }

  double elementwise_bytes() const {
    const double routed = sparse_ * 8 * static_cast<double>(shape_.moe.per_token) * h_;
    return element_ / 2 * tokens_ / t_ * (16 * width_ + 8 * (query_ + keys_) + 38.5 * h_ + routed);
  }

  double repeated(double matmul, double scores) const {
    const double norms = element_ / 2 * tokens_ / t_ / memory_rate_;
    switch (layout_.recompute) {
      case Recompute::kNone:
        return 0;
      case Recompute::kSelective:
        return norms * (6 * width_ + 8 * h_);
      case Recompute::kFull:
      case Recompute::kUnspecified:
        break;
    }
    // The last matmul of the layer need not be repeated.
    const double last = h_ * width_ * 2 * tokens_ / t_ / rate_;
    return matmul - last + scores + norms * (6 * width_ + 4 * (query_ + keys_) + 14 * h_);
  }

  // Bytes for the backward pass of `layers` layers, all micro-batches in flight.
  double kept(double layers, double sparse) const {
    const double rows = tokens_ / t_;
    // Beyond a host, rows above the capacity take a second pass, whose buffers are as large.
    const double passes = beyond_host() ? 2 : 1;
    const double routed = sparse * static_cast<double>(shape_.moe.per_token);
    const double copies = routed * kExpertCapacity * passes * h_;
    const double width = width_ + routed * (passes - 1) * static_cast<double>(shape_.moe.width);
    const double full = element_ * (4 * h_ + query_ + keys_ + value_ + 3 * width + copies) +
                        4 * static_cast<double>(shape_.heads);
    double each = full;
    if (layout_.recompute == Recompute::kSelective) each -= element_ * (width + 1.8 * h_);
    if (layout_.recompute == Recompute::kFull) each = element_ * 2 * h_;
    double held = each * rows * layers * stages_in_flight(layout_);
    if (layout_.recompute == Recompute::kFull) held += full * rows;
    switch (layout_.schedule) {
      case PipelineSchedule::kZeroBubble:
        return held * 1.2;  // what W still needs
      case PipelineSchedule::kZeroBubbleV:
      case PipelineSchedule::kVHalf:
      case PipelineSchedule::kVMin:
        // The first rank also has the head: logits wait for their W.
        return held * 1.05 + 1.6 * p_ * element_ * rows * static_cast<double>(shape_.vocab);
      default:
        return held;
    }
  }

  double working(const StageParameters& held, double layers) const {
    double out = layout_.pipeline > 1
                     ? 9 * element_ * tokens_ * h_
                     : 0.15e9 + element_ * tokens_ * h_;  // gathered rows; a chunk of the loss
    if (layout_.zero_stage < 3) return out;
    // Whole weights of two layers, in fp32 and as copies, their gradients, and those of the head.
    const double experts = expert_shards(1) > 1 ? held.experts : 0;
    const double layer = (held.dense + experts - counts_.embedding / t_) / std::max(1.0, layers);
    return out + 4 * counts_.head / t_ + layer * (2 * (4 + element_) - 2);
  }

  // Keys and values while text is generated, before the gathered weights.
  double caches(double layers) const {
    if (layout_.pipeline > 1 || shape_.latent.used()) return 0;
    return element_ * 2 * layers * keys_ / t_ * static_cast<double>(job_.sequence) / 2;
  }

  double exchange(Exchange kind, const Group& group, double bytes) const {
    return exchange_seconds(links_, kind, group, bytes);
  }

  double tensor_seconds() const {
    if (layout_.tensor <= 1) return 0;
    const double once = exchange(Exchange::kGather, {layout_.tensor, 1}, element_ * tokens_ * h_);
    // With recomputation the gathered inputs wait for it.
    const double times = layout_.recompute == Recompute::kNone        ? kTensorWaits
                         : layout_.recompute == Recompute::kSelective ? kTensorWaits + 1
                                                                      : kTensorWaits + 2.5;
    return once * times;
  }

  // Keys and values of all ranks, forward once and backward twice.
  double context_seconds() const {
    if (layout_.context <= 1) return 0;
    const double bytes = element_ * tokens_ * static_cast<double>(layout_.context) * keys_ / t_;
    return 3 * exchange(Exchange::kGather, {layout_.context, layout_.tensor}, bytes);
  }

  bool beyond_host() const {
    return shape_.has_experts() && layout_.expert > 1 && links_.size() > 1 &&
           hardware::outermost(links_, Group{layout_.expert, 1}) == &links_.back();
  }

  double expert_seconds() const {
    if (!shape_.has_experts() || layout_.expert <= 1) return 0;
    const double bytes = element_ * tokens_ / t_ * static_cast<double>(shape_.moe.per_token) * h_;
    const double times = layout_.recompute == Recompute::kFull ? 5 : 4;
    return stage_sparse_ * times * (beyond_host() ? kHostExchanges : 1) *
           exchange(Exchange::kAllToAll, {layout_.expert, 1}, bytes);
  }

  double pipeline_seconds() const {
    if (layout_.pipeline <= 1) return 0;
    const double bytes = element_ * tokens_ * h_ / t_;
    const int64_t stride = layout_.tensor * layout_.context * layout_.data;
    const auto v = static_cast<double>(layout_.virtual_stages);
    // Messages overlap with computation, except for their starts.
    return 0.25 * v * exchange(Exchange::kSend, {2, stride}, bytes);
  }

  double bubble(double f, double i, double w, double stage) const {
    const double idle = p_ - 1;
    if (layout_.pipeline <= 1) return 0;
    const double few = std::max(0.0, 2 * p_ - 1 - m_);  // fewer micro-batches than split schedules need
    switch (layout_.schedule) {
      case PipelineSchedule::kZeroBubble:
        return std::max(idle * std::max({f + i - w, f, i}), few * f);
      case PipelineSchedule::kZeroBubbleV:
        return std::max(idle * std::max({f + i - w, f, i}) / 2, few * f);
      default:
        return bubble_units(layout_) * stage;
    }
  }

  void add_data(StepTime& out, double layers) const {
    const StageParameters held =
        parameters(layers, layout_.pipeline > 1 || shape_.tied ? 1 : 2, stage_sparse_);
    const auto shards = static_cast<double>(layout_.shards);
    const int64_t inner = layout_.tensor * layout_.context;
    const Group group{layout_.shards, inner};
    // Replicas of shards; without ZeRO, of experts that are shared over more than tensor and context.
    const int64_t held_by =
        layout_.zero_stage > 0 ? layout_.shards : std::max<int64_t>(1, layout_.expert / inner);
    const Group replicas{layout_.data / held_by, inner * held_by};
    const double sharded_experts = expert_shards(1) > 1 ? held.experts : 0;
    const double dense = 4 * (held.dense + sharded_experts);  // fp32 weights and gradients travel
    const double experts = 4 * held.experts / expert_shards(1);
    const double reduce = exchange(Exchange::kReduceScatter, group, dense);
    const double gather = exchange(Exchange::kGather, group, dense);
    double sent = 0;
    add_held_up(out, reduce, replicas, group, dense, experts);
    if (layout_.zero_stage == 0) {
      sent = kReduceWaits * 1.5 * exchange(Exchange::kAllReduce, {layout_.data, inner}, dense) +
             exchange(Exchange::kAllReduce, replicas, experts);
    } else {
      const double part = dense / shards + experts;
      sent = exchange(Exchange::kAllReduce, replicas, part);
      if (layout_.zero_stage == 1) sent += kReduceWaits * reduce + gather;
      if (layout_.zero_stage == 2) {
        // Reductions of all micro-batches but the last run during their backward passes.
        sent += kReduceWaits * reduce + gather;
        const double hides = 0.5 * (out.matmuls + out.attention) / m_;
        const double waits = layout_.pipeline > 1 ? kReduceWaits * reduce : std::max(0.0, reduce - hides);
        sent += (m_ - 1) * waits;
      }
      if (layout_.zero_stage == 3) {
        const double all = m_ * (2 * gather + reduce);
        const double computed = out.matmuls + out.attention + out.elementwise + out.recompute + out.loss;
        sent += layout_.tensor > 1 ? kGatherWaitsTensor * all : std::max(kGatherWaits * all, all - computed);
      }
    }
    // Gradients of weights that all context ranks hold.
    sent += kReduceWaits * exchange(Exchange::kAllReduce, {layout_.context, layout_.tensor},
                                    4 * held.dense / (layout_.zero_stage > 0 ? shards : 1));
    out.data = sent;
    const double own = layout_.zero_stage > 0 ? held.dense / shards + held.experts / expert_shards(1)
                                              : held.dense + held.experts;
    const double copies = element_ == 2 ? 6 * (held.dense + held.experts) : 0;
    const double encoded = layout_.zero_stage >= 3 ? copies * 1.8 * m_ : copies;
    out.optimizer = (36 * own + encoded) / memory_rate_;
  }

  // In the last backward pass, rows to and from experts wait for the reductions of gradients, as do messages for
  // sums of whole gradients, and every stage waits for the next one.
  void add_held_up(StepTime& out, double reduce, const Group& replicas, const Group& group, double dense,
                   double experts) const {
    if (layout_.pipeline <= 1) return;
    double each = 0;
    if (layout_.zero_stage == 0) {
      each = exchange(Exchange::kAllReduce, {layout_.data, group.stride}, dense) +
             exchange(Exchange::kAllReduce, {layout_.context, layout_.tensor}, dense) +
             exchange(Exchange::kAllReduce, replicas, experts);
    } else if (shape_.has_experts() && layout_.expert > 1) {
      each = reduce +
             exchange(Exchange::kAllReduce, replicas, dense / static_cast<double>(group.ranks) + experts);
    }
    // With both ends of the model on the first rank the chain is shorter.
    const bool folded =
        layout_.schedule != PipelineSchedule::k1F1B && layout_.schedule != PipelineSchedule::kZeroBubble;
    out.bubble += (folded ? kHeldUp / 2 : kHeldUp) * (p_ - 1) * each;
  }

  const TrainingJob& job_;
  const ModelShape& shape_;
  const Layout& layout_;
  std::span<const LinkLevel> links_;
  ParameterCounts counts_;
  double t_, p_, m_, tokens_, h_, sparse_;
  double rate_ = 0, wide_rate_ = 0, memory_rate_ = 0, launch_ = 0, element_ = 2;
  double query_ = 0, keys_ = 0, value_ = 0, width_ = 0;  // widths; keys_ with values
  StageLoad load_;
  double stage_sparse_ = 0;
};

}  // namespace

StageLoad stage_load(const TrainingJob& job) {
  return Programs(job, ClusterSpec{}).load();
}

MemoryUse program_memory(const TrainingJob& job, const ClusterSpec& cluster) {
  return Programs(job, cluster).memory();
}

StepTime program_time(const TrainingJob& job, const ClusterSpec& cluster) {
  return Programs(job, cluster).time();
}

}  // namespace strata::planning
