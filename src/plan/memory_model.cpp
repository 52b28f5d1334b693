#include "plan/memory_model.h"

#include <algorithm>
#include <cmath>

#include "plan/step_model.h"

namespace strata::planning {
namespace {

constexpr double kKeptBytes = 2;  // bytes of an element
// Recipes with 4 bits keep the inputs of matmuls in 4 bits and a scale for 16 elements, except in the last
// 15 % of the layers (torchtitan's recipe).
constexpr double kFourBitShare = 0.15 + 0.85 * 4.5 / 16;

double tokens_of(const TrainingJob& job) {
  return static_cast<double>(job.layout.micro_batch * job.sequence) / static_cast<double>(job.layout.context);
}

// Without recomputation; `width`: of all MLPs that a token passes.
double kept_without_recompute(const TrainingJob& job, const StackProfile& stack, double width) {
  const ModelShape& shape = job.shape;
  const double tokens = tokens_of(job);
  const auto h = static_cast<double>(shape.hidden);
  const auto heads = static_cast<double>(shape.heads);
  const auto t = static_cast<double>(job.layout.tensor);
  if (stack.dropout) {
    const double shared = job.layout.sequence_parallel ? 34 / t : 10 + 24 / t;
    return tokens * h * shared;
  }
  const double queries = heads * static_cast<double>(shape.head_dim) / h;
  const double keys = static_cast<double>(shape.kv_heads * shape.head_dim) / h;
  const double mlp = static_cast<double>(shape.mlp_matrices() * 2 - (shape.gated ? 0 : 2)) * width / h;
  const double bytes = h * (8 + 4 * queries + 4 * keys + mlp) + 4 * heads;
  return tokens * bytes / t * (job.precision == Precision::kFp4 ? kFourBitShare : 1);
}

double score_bytes(const TrainingJob& job, const StackProfile& stack) {
  if (stack.attention != AttentionKernel::kScores) return 0;
  return 5 * static_cast<double>(job.shape.heads * job.sequence) * tokens_of(job) /
         static_cast<double>(job.layout.tensor);
}

double kept_of_layer(const TrainingJob& job, const StackProfile& stack, double width) {
  const double all = kept_without_recompute(job, stack, width);
  const double scores = score_bytes(job, stack);
  switch (job.layout.recompute) {
    case Recompute::kNone:
      return all + scores;
    case Recompute::kSelective:
      return stack.selective_kept * all;
    case Recompute::kFull:
    case Recompute::kUnspecified:
      break;
  }
  const double input = kKeptBytes * tokens_of(job) * static_cast<double>(job.shape.hidden);
  return job.layout.sequence_parallel ? input / static_cast<double>(job.layout.tensor) : input;
}

class MemoryModel {
 public:
  MemoryModel(const TrainingJob& job, const StackProfile& stack, const Profiles& profiles,
              const ChipSpec& chip)
      : job_(job), shape_(job.shape), layout_(job.layout), stack_(stack), profiles_(profiles), chip_(chip) {}

  MemoryUse stage(bool last) const {
    const auto p = static_cast<double>(layout_.pipeline);
    const double layers = std::ceil(static_cast<double>(shape_.layers) / p);
    const bool both = layout_.pipeline == 1;
    MemoryUse out;
    out.last_stage = last;
    add_parameters(out, layers, both && !shape_.tied ? 2 : 1);
    out.activations = layers * in_flight(last) * mean_layer();
    if (layout_.recompute == Recompute::kFull) out.working = whole_layer();
    // Inputs of attention and MLP as gathered from the tensor ranks, and their gradients.
    if (layout_.tensor > 1)
      out.working += 4 * kKeptBytes * tokens_of(job_) * static_cast<double>(shape_.hidden);
    if (both || last) add_logits(out);
    out.reserved = stack_.reserved_bytes;
    return out;
  }

 private:
  void add_parameters(MemoryUse& out, double layers, double ends) const {
    const StageParameters held = stage_parameters(shape_, layout_, layers, ends);
    const auto shards = static_cast<double>(layout_.shards);
    // Routed experts have replicas on fewer ranks.
    const double replicas = static_cast<double>(layout_.replicas() * layout_.tensor) /
                            static_cast<double>(layout_.expert * layout_.expert_tensor);
    const double expert_shards = std::max(1.0, std::min(shards, replicas));
    const auto bytes = [&](double each, bool sharded) {
      return each * (held.dense / (sharded ? shards : 1) + held.experts / (sharded ? expert_shards : 1));
    };
    out.weights = bytes(stack_.weight_bytes, layout_.zero_stage >= 3);
    out.gradients = bytes(stack_.gradient_bytes, layout_.zero_stage >= 2);
    out.optimizer = bytes(stack_.optimizer_bytes, layout_.zero_stage >= 1);
    if (layout_.zero_stage < 3) return;
    const double all = held.dense + held.experts;
    if (stack_.keeps_gathered && layout_.pipeline > 1) {
      out.gathered = all * (kKeptBytes + stack_.reduce_bytes);  // weights, and gradients until the last one
    } else {
      const ParameterCounts counts = count_parameters(shape_);
      const double ends_each = counts.embedding / static_cast<double>(layout_.tensor);
      out.gathered = kKeptBytes * (2 * (all - ends * ends_each) / layers + ends_each);
    }
  }

  // Micro-batches, in units of the stage's layers.
  double in_flight(bool last) const {
    const double first = stages_in_flight(layout_);
    if (!last || layout_.pipeline == 1) return first;
    const auto p = static_cast<double>(layout_.pipeline);
    const auto v = static_cast<double>(layout_.virtual_stages);
    switch (layout_.schedule) {
      case PipelineSchedule::k1F1B:
        return v > 1 ? std::min(p - (p - 1) / v, layout_.micro_batches) : 1;
      default:
        return first;
    }
  }

  double mean_layer() const {
    const double sparse = static_cast<double>(shape_.moe_layers()) / static_cast<double>(shape_.layers);
    double bytes = (1 - sparse) * kept_of_layer(job_, stack_, static_cast<double>(shape_.ffn));
    if (sparse > 0) bytes += sparse * kept_of_layer(job_, stack_, expert_width());
    return bytes;
  }
  // Routed tokens on the most loaded rank count more, and their copies are kept.
  double expert_width() const {
    const ExpertShape& moe = shape_.moe;
    const double copies = profiles_.imbalance * static_cast<double>(moe.per_token);
    const double width = static_cast<double>(moe.width) * (copies + static_cast<double>(moe.shared));
    return width + copies * static_cast<double>(shape_.hidden) / static_cast<double>(shape_.mlp_matrices());
  }
  double whole_layer() const {
    const double width = shape_.has_experts() ? expert_width() : static_cast<double>(shape_.ffn);
    return kept_without_recompute(job_, stack_, width) + score_bytes(job_, stack_);
  }

  void add_logits(MemoryUse& out) const {
    double bytes = stack_.logit_bytes;
    for (const auto& [chip, other] : stack_.logit_bytes_on) {
      if (chip == chip_.name) bytes = other;
    }
    const double logits =
        tokens_of(job_) * static_cast<double>(shape_.vocab) / static_cast<double>(layout_.tensor);
    out.logits = logits * bytes;
    // The outputs of all micro-batches, in fp32, stay until the schedule ends.
    if (stack_.keeps_outputs && layout_.pipeline > 1) out.logits += logits * 4 * (layout_.micro_batches - 1);
  }

  const TrainingJob& job_;
  const ModelShape& shape_;
  const Layout& layout_;
  const StackProfile& stack_;
  const Profiles& profiles_;
  const ChipSpec& chip_;
};

}  // namespace

MemoryUse memory_use(const TrainingJob& job, const StackProfile& stack, const Profiles& profiles,
                     const ChipSpec& chip) {
  const MemoryModel model(job, stack, profiles, chip);
  const MemoryUse first = model.stage(false);
  if (job.layout.pipeline == 1) return first;
  const MemoryUse last = model.stage(true);
  return first.total() >= last.total() ? first : last;
}

double layer_activation_bytes(const TrainingJob& job, const StackProfile& stack) {
  return kept_of_layer(job, stack, static_cast<double>(job.shape.ffn));
}

}  // namespace strata::planning
