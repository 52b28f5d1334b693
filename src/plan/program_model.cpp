#include "plan/program_model.h"

#include <algorithm>

#include "plan/program_shape.h"

namespace strata::planning {
namespace {

using hardware::Exchange;
using hardware::exchange_seconds;
using hardware::Group;

// Shares of exchanges for which compute waits, and calls of a layer, from price.h for compiled
// programs of Llama 8B to 405B on up to 1,024 H100 (2026-11-26). Of the ten exchanges of tensor ranks in a
// layer, two gather inputs again, mostly while weight gradients are computed.
constexpr double kTensorWaits = 8.5;
constexpr double kExchangesOfBlock = 5;
constexpr double kTensorForward = 0.4;      // share of them in the forward pass
constexpr double kReduceWaits = 0.5;        // of the last micro-batch's gradients
constexpr double kWithoutGather = 0.25;     // share of the weight gradients' matmuls
constexpr double kHidesGathers = 0.1;       // the same for weights of the next layer
constexpr double kHidesOthers = 0.5;        // share of a layer's computation between other exchanges
constexpr double kBackwardAttention = 2.5;  // FlashAttention-2: five matmuls for two
// Parameters that a layer registers, each with separate statistics; small kernels cost their launch.
constexpr double kSmallKernels = 25, kSmallKernelsEach = 10, kSmallKernelsSparse = 25;
// Bytes of an element of a token-expert pair in bf16: an MLP's 16 and 10 for the weights; of a hidden value for
// the router.
constexpr double kWeighted = 26, kWeightedAgain = 10, kRouted = 30;
// Bytes of a hidden value in bf16 for an end of the model (a look-up of 6 and its gradient of 10, a norm of 8 and of 10)
// and to add an update to the residual stream before it is sent.
constexpr double kEndForward = 7, kEndBackward = 10, kJoined = 6;
constexpr double kHeldUpWhole = 0.5,
                 kHeldUp = 0.06;  // of sums of whole gradients; after a split backward pass
constexpr double kGatherWaitsTensor =
    0.9;  // of ZeRO-3's gathers, where exchanges of tensor ranks are between them

class Programs {
 public:
  Programs(const TrainingJob& job, const ClusterSpec& cluster)
      : s_(job), links_(cluster.links), host_(cluster.devices_per_host), kinds_(s_.costs_of_kinds(cluster)) {
    const ChipSpec& chip = cluster.chip;
    rate_ = chip.peak_of(job.precision).value * chip.achievable_of(job.precision).value;
    // Attention and the loss stay in bf16 where matmuls of the layers are in fp8 or fp4.
    const bool narrow = job.precision == Precision::kFp8 || job.precision == Precision::kFp4;
    const Precision wide = narrow ? Precision::kBf16 : job.precision;
    wide_rate_ = chip.peak_of(wide).value * chip.achievable_of(wide).value;
    memory_rate_ = chip.memory_bandwidth.value * chip.memory_achievable.value;
    launch_ = chip.launch.value;
  }

  StepTime time() const {
    const double m = s_.m;
    Loaded rank = s_.layout.pipeline == 1 ? whole_model() : most_loaded();
    const LayerTime one = mean_layer(rank.mix);
    const double layers = rank.mix.layers(), rounds = m * layers;
    StepTime out;
    out.matmuls = rounds * one.matmuls();
    out.attention = rounds * (1 + kBackwardAttention) * one.scores;
    out.elementwise = rounds * one.elements;
    out.recompute = rounds * one.repeated;
    out.loss = rank.has_head ? m * head().all() : 0;
    if (s_.layout.pipeline == 1 && !kinds_.empty()) out.elementwise += 2 * m * ends().all();
    // Costs of kinds have the small kernels of a layer.
    const double each = kinds_.empty() ? kSmallKernelsEach : 0;
    out.fixed =
        (updating(rank.mix) + (each + rank.mix.sparse_share() * kSmallKernelsSparse) * rounds * launch_);
    out.tensor = rounds * one.tensor;
    out.context = rounds * one.context;
    out.expert = rounds * one.expert;
    out.pipeline = rank.messages;
    out.bubble = rank.bubble;
    add_data(out, rank);
    return out;
  }

 private:
  // Seconds of a layer for one micro-batch.
  struct LayerTime {
    double matmul = 0, scores = 0;                                           // forward
    double input_grad = 0, weight_grad = 0;                                  // matmuls of the backward pass
    double elements = 0, repeated = 0, tensor = 0, context = 0, expert = 0;  // forward and backward
    double tensor_forward = 0;                                               // of `tensor`

    double matmuls() const { return matmul + input_grad + weight_grad; }
    double all() const {
      return matmuls() + (1 + kBackwardAttention) * scores + elements + repeated + tensor + context + expert;
    }
    double forward() const {
      return matmul + scores + elements / 3 + tensor_forward + context / 3 + expert / 2;
    }
  };
  // A rank of the pipeline.
  struct Loaded {
    LayerMix mix;
    bool has_head = false;
    double bubble = 0, messages = 0;  // s of a step
  };

  Loaded whole_model() const { return {.mix = s_.all_layers(), .has_head = true}; }

  // The rank with the most work, and its waiting by walking the schedule.
  Loaded most_loaded() const {
    const auto walked = walk_schedule(s_.layout);
    const auto layout = stages_of(s_.parts(), walked->schedule.stages);
    const LayerTime dense = layer(0), sparse = s_.model.has_experts() ? layer(1) : LayerTime{};
    const Ends head = this->head(), ends = this->ends();
    const auto sum = [&](const LayerMix& mix, const auto& part) {
      double out = mix.dense * part(dense) + mix.sparse * part(sparse);
      for (size_t i = 0; i < mix.kinds.size(); ++i)
        out += mix.kinds[i] * (part(time_of(kinds_[i])) - part(dense));
      return out;
    };
    parallel::Costs costs;
    for (const parallel::StageParts& stage : *layout) {
      const LayerMix mix = s_.layers_of(stage);
      const double forward = sum(mix, [](const LayerTime& one) { return one.forward(); });
      const double weight = sum(mix, [](const LayerTime& one) { return one.weight_grad; });
      const double all = sum(mix, [](const LayerTime& one) { return one.all(); });
      parallel::StageCost cost{
          .forward = forward, .input_grad = all - forward - weight, .weight_grad = weight};
      const auto add = [&](const Ends& end) {
        cost.forward += end.forward;
        cost.input_grad += end.input_grad;
        cost.weight_grad += end.weight_grad;
      };
      if (stage.has_head) add(head);
      if (!kinds_.empty()) {
        if (stage.has_head || stage.has_embedding) add(ends);
        if (!stage.has_head) cost.forward += kJoined * hidden_seconds();
      }
      costs.stages.push_back(cost);
    }
    Loaded out;
    double most = 0;
    for (const std::vector<int32_t>& stages : walked->stages) {
      Loaded one;
      double busy = 0;
      for (const int32_t stage : stages) {
        const parallel::StageParts& parts = (*layout)[static_cast<size_t>(stage)];
        const parallel::StageCost& cost = costs.stages[static_cast<size_t>(stage)];
        busy += cost.forward + cost.input_grad + cost.weight_grad;
        one.mix.add(s_.layers_of(parts));
        one.has_head = one.has_head || parts.has_head;
      }
      if (busy <= most) continue;
      most = busy;
      out = one;
    }
    costs.message = message_seconds();
    const double waits = std::max(0.0, makespan(costs) - most * s_.m);
    // Messages overlap with computation, except for their starts.
    out.messages =
        std::min(waits, 0.25 * s_.m * static_cast<double>(s_.layout.virtual_stages) * costs.message);
    out.bubble = waits - out.messages;
    return out;
  }

  // Of the step. Micro-batches above those that fill the pipeline take as long as the last of these.
  double makespan(const parallel::Costs& costs) const {
    const int64_t most = kSteadyMicroBatches + (s_.layout.schedule == PipelineSchedule::kDualPipeV ? 1 : 0);
    const auto steady = walk_schedule(s_.layout, most), fewer = walk_schedule(s_.layout, most - 1);
    const double seconds = walked_seconds(*steady, costs);
    const double more = s_.m - steady->schedule.micro_batches;
    if (more <= 0) return seconds;
    return seconds + more * (seconds - walked_seconds(*fewer, costs)) /
                         static_cast<double>(steady->schedule.micro_batches - fewer->schedule.micro_batches);
  }

  // Exchanges along the tensor and context axes are shared by the passes as in the formulas.
  static LayerTime time_of(const LayerCost& cost) {
    LayerTime out;
    out.tensor = cost.tensor;
    out.tensor_forward = kTensorForward * cost.tensor;
    out.context = cost.context;
    out.matmul = cost.forward - out.tensor_forward - out.context / 3;
    out.weight_grad = cost.weight_grad;
    out.input_grad = cost.input_grad - (out.tensor - out.tensor_forward) - 2 * out.context / 3;
    return out;
  }

  // A layer with the mean of all.
  LayerTime mean_layer(const LayerMix& mix) const {
    LayerTime out = layer(mix.sparse_share());
    if (mix.kinds.empty()) return out;
    const LayerTime dense = layer(0);
    for (size_t i = 0; i < mix.kinds.size(); ++i) {
      const LayerTime own = time_of(kinds_[i]);
      const double share = mix.kinds[i] / mix.layers();
      for (double LayerTime::*part :
           {&LayerTime::matmul, &LayerTime::scores, &LayerTime::input_grad, &LayerTime::weight_grad,
            &LayerTime::elements, &LayerTime::repeated, &LayerTime::tensor, &LayerTime::context,
            &LayerTime::expert, &LayerTime::tensor_forward})
        out.*part += share * (own.*part - dense.*part);
    }
    return out;
  }

  // Seconds of a step in small kernels of the update.
  double updating(const LayerMix& mix) const {
    if (mix.kinds.empty()) return kSmallKernels * mix.layers() * launch_;
    double out = 0;
    for (size_t i = 0; i < mix.kinds.size(); ++i) out += mix.kinds[i] * kinds_[i].updating;
    return out;
  }

  // `sparse`: share of such layers with experts.
  LayerTime layer(double sparse) const {
    const double rows = s_.tokens / s_.t;
    const auto shared = static_cast<double>(s_.model.moe.shared);
    const double active = s_.counts.attention + (1 - sparse) * s_.counts.mlp +
                          sparse * (s_.counts.router + shared * s_.counts.expert);
    const double width = (1 - sparse) * static_cast<double>(s_.model.ffn) +
                         sparse * shared * static_cast<double>(s_.model.moe.width);
    LayerTime out;
    // Causal kernels skip half of the scores.
    out.scores = rows * static_cast<double>(s_.job.sequence) * (s_.query + s_.value) / wide_rate_;
    const double others = s_.tokens * static_cast<double>(s_.layout.context - 1);
    out.matmul = out.input_grad = out.weight_grad = (rows * 2 * active + others * 2 * s_.expanded) / rate_;
    double experts = 0;
    if (sparse > 0) {
      // Experts of few tokens take as long as reading their weights and writing their gradients.
      const double routed = sparse * static_cast<double>(s_.model.moe.per_token) * s_.counts.expert;
      const double held = sparse * static_cast<double>(s_.model.moe.experts) * s_.counts.expert /
                          static_cast<double>(s_.layout.expert * s_.layout.expert_tensor);
      const double computed = rows * 2 * routed / rate_, read = s_.element * held / memory_rate_;
      experts = std::max(computed, read);
      out.matmul += experts;
      out.input_grad += experts;
      out.weight_grad += std::max(computed, 2 * 4 * held / memory_rate_);
    }
    // Values of the capacity for token-expert pairs, which are weighted too; routers read and write fp32.
    const double pairs = sparse * s_.expert_pairs() * s_.t * static_cast<double>(s_.model.moe.width) /
                         static_cast<double>(s_.layout.expert_tensor);
    out.elements =
        s_.element / 2 * rows *
        (16 * width + 8 * (s_.query + s_.keys) + (38.5 + sparse * kRouted) * s_.h + kWeighted * pairs) /
        memory_rate_;
    out.repeated = repeated(width, pairs, experts, out);
    out.tensor = tensor_seconds(sparse);
    out.tensor_forward = kTensorForward * out.tensor;
    if (s_.layout.overlap_chunks > 1) add_overlap(sparse, out);
    out.context = context_seconds();
    out.expert = sparse * expert_seconds();
    return out;
  }

  // `experts`: seconds of their matmuls in the forward pass.
  double repeated(double width, double pairs, double experts, const LayerTime& one) const {
    const double norms = s_.element / 2 * s_.tokens / s_.t / memory_rate_;
    switch (s_.layout.recompute) {
      case Recompute::kNone:
        return 0;
      case Recompute::kSelective:
        return norms * (6 * width + kWeightedAgain * pairs + 8 * s_.h);
      case Recompute::kFull:
      case Recompute::kUnspecified:
        break;
    }
    // The last matmul of the layer need not be repeated.
    const double last =
        s_.h * width * 2 * s_.tokens / s_.t / rate_ + experts / static_cast<double>(s_.model.mlp_matrices());
    return one.matmul - last + one.scores +
           norms * (6 * width + kWeightedAgain * pairs + 4 * (s_.query + s_.keys) + 14 * s_.h);
  }

  // Seconds of an end of the model for a micro-batch.
  struct Ends {
    double forward = 0, input_grad = 0, weight_grad = 0;
    double all() const { return forward + input_grad + weight_grad; }
  };
  // One rank computes the loss with its gradients, in B; tensor ranks compute the logits in F and again in B,
  // and a split backward pass again for I and for W. Each writes and reads fp32 logits (ops/loss).
  Ends head() const {
    const double product = 2 * s_.counts.head * s_.tokens / s_.t / wide_rate_;
    const double logits = 8 * s_.tokens / s_.t * static_cast<double>(s_.model.vocab) / memory_rate_;
    const auto seconds = [&](double products) { return std::max(products * product, logits); };
    if (splits_backward(s_.layout)) return {seconds(1), seconds(2), seconds(2)};
    if (s_.layout.tensor > 1) return {seconds(1), seconds(3), 0};
    return {0, seconds(3), 0};
  }
  // Half of what embedding and last norm take together, which the formula of a layer has in its constants.
  Ends ends() const { return {kEndForward * hidden_seconds(), kEndBackward * hidden_seconds(), 0}; }
  // Per byte of each hidden value.
  double hidden_seconds() const { return s_.element / 2 * s_.tokens / s_.t * s_.h / memory_rate_; }
  double message_seconds() const {
    const int64_t stride = s_.layout.tensor * s_.layout.context * s_.layout.data;
    return exchange(Exchange::kSend, {2, stride}, s_.element * s_.tokens * s_.h / s_.t);
  }

  StageParameters parameters(const Loaded& rank) const {
    const double shared = static_cast<double>(s_.model.moe.shared) * s_.counts.expert;
    const double with = rank.mix.sparse, without = rank.mix.dense;
    StageParameters out;
    out.dense = without * s_.counts.mlp / s_.t + with * (shared / s_.t + s_.counts.router) +
                rank.mix.layers() * (s_.attention + s_.counts.norms) +
                (s_.layout.pipeline > 1 || s_.model.tied ? 1 : 2) * s_.counts.embedding / s_.t;
    for (size_t i = 0; i < rank.mix.kinds.size(); ++i)
      out.dense += rank.mix.kinds[i] * (kinds_[i].parameters - s_.dense_parameters());
    out.experts = with * static_cast<double>(s_.model.moe.experts) * s_.counts.expert /
                  static_cast<double>(s_.layout.expert * s_.layout.expert_tensor);
    return out;
  }

  double exchange(Exchange kind, const Group& group, double bytes) const {
    return exchange_seconds(links_, kind, group, bytes);
  }

  double tensor_seconds(double sparse) const {
    if (s_.layout.tensor <= 1) return 0;
    const Group ranks{s_.layout.tensor, 1};
    const double once = exchange(Exchange::kGather, ranks, s_.element * s_.tokens * s_.h);
    // Of attention and of the MLP, of shared experts and of those whose width is sharded.
    const double blocks =
        1 + (1 - sparse) + sparse * ((s_.model.moe.shared > 0 ? 1 : 0) + (s_.cuts_experts() ? 1 : 0));
    // With recomputation the gathered inputs wait for it.
    const double more = s_.layout.recompute == Recompute::kNone        ? 0
                        : s_.layout.recompute == Recompute::kSelective ? 1
                                                                       : 2.5;
    const double logits = sparse * 4 * s_.tokens * static_cast<double>(s_.model.moe.experts);
    const double small =
        sparse > 0 ? (s_.cuts_experts() ? 6 : 1) * sparse * exchange(Exchange::kGather, ranks, 1) : 0;
    return once * (blocks * kTensorWaits / 2 + more) + 2 * exchange(Exchange::kGather, ranks, logits) + small;
  }

  // What changes with exchanges in parts that overlap the parts of a matmul (program/row_chunks.h): in the forward
  // pass and for the gradients of gathered inputs.
  void add_overlap(double sparse, LayerTime& out) const {
    const Group ranks{s_.layout.tensor, 1};
    const auto parts = static_cast<double>(s_.layout.overlap_chunks);
    const double bytes = s_.element * s_.tokens * s_.h;
    const double once = exchange(Exchange::kGather, ranks, bytes);
    const double part = exchange(Exchange::kGather, ranks, bytes / parts);
    const LinkLevel* const level = hardware::outermost(links_, ranks);
    // Smaller messages take more of the device's compute.
    const double slower = (level != nullptr ? level->compute_share.value : 0) * (parts * part - once);
    const double rows = s_.tokens / (parts * s_.t);
    // A part of a matmul is one for each rank's rows, the whole one `inputs` x `outputs` in a tensor rank.
    const auto whole = [&](double inputs, double outputs) {
      return 2 * s_.tokens * inputs * outputs / rate_;
    };
    const auto piece = [&](double inputs, double outputs) {
      const double moved = s_.element * (rows * inputs + inputs * outputs + rows * outputs) / memory_rate_;
      return s_.t * std::max({2 * rows * inputs * outputs / rate_, moved, launch_});
    };
    const auto chain = [&](double computed) {
      return part + (parts - 1) * std::max(part, computed) + computed;
    };
    const auto forward = [&](double share, double inputs, double outputs) {
      const double more = share * (chain(piece(inputs, outputs)) - once - whole(inputs, outputs) + slower);
      out.tensor_forward += more;
      out.tensor += more;
    };
    const bool splits = splits_backward(s_.layout);
    // In parts, compute waits for all exchanges of a block where the backward pass is whole: the gather that a weight
    // gradient needs comes after the parts of the reduction.
    const double waits =
        splits || s_.layout.recompute == Recompute::kFull ? 0 : kExchangesOfBlock - kTensorWaits / 2;
    const auto backward = [&](double share, double inputs, double outputs) {
      const double computed = whole(inputs, outputs);
      const double before = computed + once;
      const double after = chain(piece(inputs, outputs));
      out.tensor += share * (after - before + slower + waits * once);
    };
    if (!s_.model.latent.used()) {
      forward(1, s_.h, (s_.query + s_.keys) / s_.t);
      backward(1, s_.h, (s_.query + s_.keys) / s_.t);
    }
    forward(1, s_.value / s_.t, s_.h);
    const auto mlp = [&](double share, double width) {
      const double inputs = static_cast<double>(s_.model.mlp_matrices() - 1) * width / s_.t;
      forward(share, s_.h, inputs);
      backward(share, s_.h, inputs);
      forward(share, width / s_.t, s_.h);
    };
    if (sparse < 1) mlp(1 - sparse, static_cast<double>(s_.model.ffn));
    if (sparse > 0 && s_.model.moe.shared > 0)
      mlp(sparse, static_cast<double>(s_.model.moe.shared * s_.model.moe.width));
  }

  // Keys and values, or latents, of all ranks, forward once and backward twice.
  double context_seconds() const {
    if (s_.layout.context <= 1) return 0;
    const double bytes = s_.element * s_.tokens * static_cast<double>(s_.layout.context) * s_.gathered;
    return 3 * exchange(Exchange::kGather, {s_.layout.context, s_.layout.tensor}, bytes);
  }

  double expert_seconds() const {
    if (!s_.model.has_experts() || s_.layout.expert <= 1) return 0;
    const auto ranks = static_cast<double>(s_.layout.expert);
    const int64_t stride = s_.cuts_experts() ? s_.layout.tensor : 1;
    const double rows = s_.cuts_experts() ? s_.tokens : s_.tokens / s_.t;
    const double bytes = s_.element * rows * s_.h * s_.rows_sent(host_) * ranks / (ranks - 1);
    const double times = s_.layout.recompute == Recompute::kFull ? 5 : 4;
    // Rows are written to and read from the buffers of the capacity.
    const double copied = 2 * s_.element * s_.tokens * s_.expert_rows() * s_.h / memory_rate_;
    return times * (exchange(Exchange::kAllToAll, {s_.layout.expert, stride}, bytes) + copied);
  }

  void add_data(StepTime& out, const Loaded& rank) const {
    const StageParameters held = parameters(rank);
    const auto shards = static_cast<double>(s_.layout.shards);
    const int64_t inner = s_.layout.tensor * s_.layout.context;
    const Group group{s_.layout.shards, inner};
    // Replicas of shards; without ZeRO, of experts that are shared over more than tensor and context.
    const int64_t held_by =
        s_.layout.zero_stage > 0 ? s_.layout.shards : static_cast<int64_t>(s_.expert_groups());
    const Group replicas{s_.layout.data / held_by, inner * held_by};
    const double sharded_experts = s_.expert_shards(1) > 1 ? held.experts : 0;
    const double dense = 4 * (held.dense + sharded_experts);  // of gradients in fp32
    const double experts = 4 * held.experts / s_.expert_shards(1);
    const double reduce = exchange(Exchange::kReduceScatter, group, dense);
    const double gather = exchange(Exchange::kGather, group, gathered_share() * dense);
    double sent = 0;
    add_held_up(out, replicas, group, dense, experts);
    if (s_.layout.zero_stage == 0) {
      sent = kReduceWaits * 1.5 * exchange(Exchange::kAllReduce, {s_.layout.data, inner}, dense) +
             exchange(Exchange::kAllReduce, replicas, experts);
    } else {
      const double part = dense / shards + experts;
      sent = exchange(Exchange::kAllReduce, replicas, part);
      if (s_.layout.zero_stage == 1) sent += kReduceWaits * reduce + gather;
      if (s_.layout.zero_stage == 2) sent += s_.m * sharded_waits(rank, group, dense) + gather;
      if (s_.layout.zero_stage == 3) sent += s_.m * sharded_waits(rank, group, dense);
    }
    // Gradients of weights that all context ranks hold.
    sent += kReduceWaits * exchange(Exchange::kAllReduce, {s_.layout.context, s_.layout.tensor},
                                    4 * held.dense / (s_.layout.zero_stage > 0 ? shards : 1));
    out.data = sent;
    const double own = s_.layout.zero_stage > 0 ? held.dense / shards + held.experts / s_.expert_shards(1)
                                                : held.dense + held.experts;
    const double encoded = s_.element == 2 ? 6 * own : 0;  // a copy in bf16
    out.optimizer = (36 * own + encoded) / memory_rate_;
  }

  // Bytes of gathered weights relative to those of gradients; leaves out the few that stay in fp32.
  double gathered_share() const { return s_.element / 4; }

  // Of a micro-batch: in the segments of the rank's stages ZeRO-2 and 3 reduce the gradients of a layer while the
  // next one is computed, and ZeRO-3 gathers the weights of a layer while the one before is. A segment ends
  // when its exchanges are done (program/price.h).
  double sharded_waits(const Loaded& rank, const Group& group, double bytes) const {
    const LayerTime one = mean_layer(rank.mix);
    const double segments = s_.layout.pipeline > 1 ? static_cast<double>(s_.layout.virtual_stages) : 1;
    const double layers = rank.mix.layers() / segments;
    const double table = 4 * s_.counts.embedding / s_.t * (s_.layout.pipeline > 1 || s_.model.tied ? 1 : 2);
    const double of_layer = (bytes - table) / rank.mix.layers();
    const double reduce = exchange(Exchange::kReduceScatter, group, of_layer);
    const double gather =
        s_.layout.zero_stage >= 3 ? exchange(Exchange::kGather, group, gathered_share() * of_layer) : 0;
    // Exchanges of the other axes wait in the same queue.
    const bool others = s_.layout.context > 1 || s_.layout.expert > 1;
    const double hides = !others ? 1 : s_.layout.zero_stage >= 3 ? kHidesGathers : kHidesOthers;
    const auto waits = [&](double exchanged, double computed) {
      if (exchanged <= 0) return 0.0;
      return exchanged + (layers - 1) * std::max(0.0, exchanged - hides * computed);
    };
    const double forward = one.forward(), backward = one.all() - forward;
    double out = 0;
    if (s_.layout.tensor > 1) {
      out += layers * kGatherWaitsTensor * gather;
    } else {
      out += waits(gather, forward);
    }
    if (!splits_backward(s_.layout)) {
      out += s_.layout.tensor > 1 ? layers * (kGatherWaitsTensor * gather + reduce)
                                  : waits(gather + reduce, backward);
    } else {
      out += s_.layout.tensor > 1 ? layers * kGatherWaitsTensor * gather
                                  : waits(gather, backward - one.weight_grad);
      // Tensor ranks gather inputs again after the reductions of the layer before: only the MLP's last matmul
      // needs none.
      const double hidden = s_.layout.tensor > 1 ? kWithoutGather : 1;
      out += waits(reduce, hidden * one.weight_grad);
    }
    return segments * out + ends_wait(rank, group);
  }

  // No computation hides gathers and reductions of the tables of both ends. The head of a split
  // backward pass is gathered for F, I and W.
  double ends_wait(const Loaded& rank, const Group& group) const {
    const double tables = !rank.has_head ? 0 : s_.layout.pipeline == 1 && !s_.model.tied ? 2 : 1;
    const double bytes = 4 * s_.counts.embedding / s_.t;
    const double gathers = s_.layout.zero_stage < 3 || !rank.has_head ? 0
                           : splits_backward(s_.layout)               ? tables + 2
                                                                      : tables;
    return tables * exchange(Exchange::kReduceScatter, group, bytes) +
           gathers * exchange(Exchange::kGather, group, gathered_share() * bytes);
  }

  // In the last backward pass, rows to and from experts wait for the reductions of gradients, as do messages
  // for sums of whole gradients, and every stage waits for the next one.
  void add_held_up(StepTime& out, const Group& replicas, const Group& group, double dense,
                   double experts) const {
    if (s_.layout.pipeline <= 1) return;
    // W, which the last reductions follow, delays no other stage.
    const double share = splits_backward(s_.layout) ? kHeldUp : kHeldUpWhole;
    double each = 0;
    if (s_.layout.zero_stage == 0) {
      each = share * (exchange(Exchange::kAllReduce, {s_.layout.data, group.stride}, dense) +
                      exchange(Exchange::kAllReduce, {s_.layout.context, s_.layout.tensor}, dense) +
                      exchange(Exchange::kAllReduce, replicas, experts));
    } else if (s_.model.has_experts() && s_.layout.expert > 1) {
      each = share *
             exchange(Exchange::kAllReduce, replicas, dense / static_cast<double>(group.ranks) + experts);
    }
    // With both ends of the model on the first rank the chain is shorter.
    out.bubble += (is_folded(s_.layout.schedule) ? 0.5 : 1) * (s_.p - 1) * each;
  }

  ProgramShape s_;
  std::span<const LinkLevel> links_;
  int64_t host_;
  std::vector<LayerCost> kinds_;
  double rate_ = 0, wide_rate_ = 0, memory_rate_ = 0, launch_ = 0;
};

}  // namespace

StepTime program_time(const TrainingJob& job, const ClusterSpec& cluster) {
  return Programs(job, cluster).time();
}

}  // namespace strata::planning
