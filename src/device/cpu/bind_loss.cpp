#include <cstring>

#include "device/cpu/bind.h"
#include "graph/loss_seed.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/softmax_loss.h"
#include "ops/ops.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;

BoundKernel bound_loss(const BindRequest& request, cpu::LinearCrossEntropySpec spec, Kernel run) {
  const NodeView& view = request.view;
  spec.tokens = view.in(0).shape[0];
  spec.hidden_size = view.in(0).shape[1];
  spec.vocab = view.in(1).shape[0];
  spec.dtype = view.in(0).dtype;
  const auto plan = cpu::plan_linear_cross_entropy(spec, request.device);
  BoundKernel kernel = bound(run, plan, plan.scratch_bytes);
  kernel.instantiate = instantiate<cpu::LinearCrossEntropy, cpu::LinearCrossEntropyPlan>;
  return kernel;
}

float softcap_of(const NodeView& view) {
  return static_cast<float>(view.attrs<ops::LinearCrossEntropyAttrs>().softcap);
}
double target_share_of(const NodeView& view) {
  return view.attrs<ops::LinearCrossEntropyAttrs>().target_share;
}

// (x, w, targets, bias?) → sum, count, per_token?, greedy?
BoundKernel linear_cross_entropy(const BindRequest& request) {
  using Op = ops::LinearCrossEntropy;
  return bound_loss(
      request,
      {.task = cpu::CrossEntropyTask::kLoss,
       .accumulate_loss = request.accumulate[Op::kSum],
       .target_share = target_share_of(request.view),
       .softcap = softcap_of(request.view),
       .bias = request.view.has(Op::kBias)},
      [](Launch&, void* loss, std::byte* const* p) {
        instance_of<cpu::LinearCrossEntropy>(loss).run({.x = p[0],
                                                        .w_forward = p[1],
                                                        .bias = f32(p[3]),
                                                        .targets = i32(p[2]),
                                                        .loss_sum = reinterpret_cast<double*>(p[4]),
                                                        .count = reinterpret_cast<int64_t*>(p[5]),
                                                        .token_loss = f32(p[6]),
                                                        .greedy = reinterpret_cast<int32_t*>(p[7]),
                                                        .scratch = p[8]});
      });
}

// (x, w for logits, w for dx, targets, bias?, seed?) → sum, count, dx, dw, dbias?
BoundKernel linear_cross_entropy_train(const BindRequest& request) {
  using Op = ops::LinearCrossEntropyTrain;
  const bool bias = request.view.has(Op::kBias);
  return bound_loss(
      request,
      {.task = cpu::CrossEntropyTask::kTraining,
       .accumulate = request.accumulate[Op::kDweight],
       .accumulate_loss = request.accumulate[Op::kSum],
       .target_share = target_share_of(request.view),
       .softcap = softcap_of(request.view),
       .bias = bias,
       .accumulate_bias = bias && request.accumulate[Op::kDbias]},
      [](Launch&, void* held, std::byte* const* p) {
        instance_of<cpu::LinearCrossEntropy>(held).run({.x = p[0],
                                                        .w_forward = p[1],
                                                        .w_input_grad = p[2],
                                                        .bias = f32(p[4]),
                                                        .targets = i32(p[3]),
                                                        .grad_scale = p[5] != nullptr ? *f32(p[5]) : 1.0f,
                                                        .loss_sum = reinterpret_cast<double*>(p[6]),
                                                        .count = reinterpret_cast<int64_t*>(p[7]),
                                                        .dx = p[8],
                                                        .dw = f32(p[9]),
                                                        .dbias = f32(p[10]),
                                                        .scratch = p[11]});
      });
}

// What the ops on parts of the vocabulary have in common.
cpu::LinearCrossEntropySpec spec_of_parts(const BindRequest& request, cpu::CrossEntropyTask task, int bias,
                                          int vocab_start) {
  const NodeView& view = request.view;
  const auto& attrs = view.attrs<ops::CrossEntropyAttrs>();
  return {.task = task,
          .target_share = attrs.target_share,
          .softcap = static_cast<float>(attrs.softcap),
          .bias = view.has(bias),
          .parts = view.has(vocab_start) ? view.in(vocab_start).shape[0] : 1,
          .vocabulary = attrs.vocabulary};
}

// (x, w, targets, bias?, vocab_start?) → statistics
BoundKernel cross_entropy_statistics(const BindRequest& request) {
  using Op = ops::CrossEntropyStatistics;
  return bound_loss(request,
                    spec_of_parts(request, cpu::CrossEntropyTask::kStatistics, Op::kBias, Op::kVocabStart),
                    [](Launch&, void* held, std::byte* const* p) {
                      instance_of<cpu::LinearCrossEntropy>(held).run({.x = p[0],
                                                                      .w_forward = p[1],
                                                                      .bias = f32(p[3]),
                                                                      .targets = i32(p[2]),
                                                                      .vocab_start = i32(p[4]),
                                                                      .statistics = f32(p[5]),
                                                                      .scratch = p[6]});
                    });
}

// (x, w for logits, w for dx, targets, statistics, dstatistics, bias?, vocab_start?) → dx
BoundKernel cross_entropy_grad_input(const BindRequest& request) {
  using Op = ops::CrossEntropyGradInput;
  return bound_loss(request,
                    spec_of_parts(request, cpu::CrossEntropyTask::kInputGrad, Op::kBias, Op::kVocabStart),
                    [](Launch&, void* held, std::byte* const* p) {
                      instance_of<cpu::LinearCrossEntropy>(held).run({.x = p[0],
                                                                      .w_forward = p[1],
                                                                      .w_input_grad = p[2],
                                                                      .bias = f32(p[6]),
                                                                      .targets = i32(p[3]),
                                                                      .dx = p[8],
                                                                      .vocab_start = i32(p[7]),
                                                                      .statistics = f32(p[4]),
                                                                      .dstatistics = f32(p[5]),
                                                                      .scratch = p[9]});
                    });
}

// (x, w for logits, targets, statistics, dstatistics, bias?, vocab_start?) → dw, dbias?
BoundKernel cross_entropy_grad_weight(const BindRequest& request) {
  using Op = ops::CrossEntropyGradWeight;
  auto spec = spec_of_parts(request, cpu::CrossEntropyTask::kWeightGrad, Op::kBias, Op::kVocabStart);
  spec.accumulate = request.accumulate[Op::kDweight];
  spec.accumulate_bias = spec.bias && request.accumulate[Op::kDbias];
  return bound_loss(request, spec, [](Launch&, void* held, std::byte* const* p) {
    instance_of<cpu::LinearCrossEntropy>(held).run({.x = p[0],
                                                    .w_forward = p[1],
                                                    .bias = f32(p[5]),
                                                    .targets = i32(p[2]),
                                                    .dw = f32(p[7]),
                                                    .dbias = f32(p[8]),
                                                    .vocab_start = i32(p[6]),
                                                    .statistics = f32(p[3]),
                                                    .dstatistics = f32(p[4]),
                                                    .scratch = p[9]});
  });
}

// (x, w for logits, w for dx, targets, statistics, dstatistics, bias?, vocab_start?) → dx, dw, dbias?
BoundKernel cross_entropy_grad(const BindRequest& request) {
  using Op = ops::CrossEntropyGrad;
  auto spec = spec_of_parts(request, cpu::CrossEntropyTask::kGradients, Op::kBias, Op::kVocabStart);
  spec.accumulate = request.accumulate[Op::kDweight];
  spec.accumulate_bias = spec.bias && request.accumulate[Op::kDbias];
  return bound_loss(request, spec, [](Launch&, void* held, std::byte* const* p) {
    instance_of<cpu::LinearCrossEntropy>(held).run({.x = p[0],
                                                    .w_forward = p[1],
                                                    .w_input_grad = p[2],
                                                    .bias = f32(p[6]),
                                                    .targets = i32(p[3]),
                                                    .dx = p[8],
                                                    .dw = f32(p[9]),
                                                    .dbias = f32(p[10]),
                                                    .vocab_start = i32(p[7]),
                                                    .statistics = f32(p[4]),
                                                    .dstatistics = f32(p[5]),
                                                    .scratch = p[11]});
  });
}

struct ReductionPlan {
  int64_t tokens, parts;
  bool accumulate;

  cpu::StatisticsArgs of(std::byte* const* p) const {
    return {.tokens = tokens, .parts = parts, .statistics = f32(p[0]), .targets = i32(p[1])};
  }
};
ReductionPlan reduction(const BindRequest& request) {
  const Shape& shape = request.view.in(ops::CrossEntropyLoss::kStatistics).shape;
  return {.tokens = shape[1], .parts = shape[0], .accumulate = request.accumulate[0]};
}

// (statistics, targets) → sum, count, per_token?, greedy?
BoundKernel cross_entropy_loss(const BindRequest& request) {
  const ReductionPlan planned = reduction(request);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<ReductionPlan>(held);
        cpu::sum_statistics(plan.of(p), {.accumulate = plan.accumulate,
                                         .loss_sum = reinterpret_cast<double*>(p[2]),
                                         .count = reinterpret_cast<int64_t*>(p[3]),
                                         .token_loss = f32(p[4]),
                                         .greedy = reinterpret_cast<int32_t*>(p[5]),
                                         .scratch = reinterpret_cast<double*>(p[6])});
      },
      planned, planned.tokens * size_of(DType::kF64));
}

// (statistics, targets, seed?) → dstatistics
BoundKernel cross_entropy_loss_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::sum_statistics_grad(plan_of<ReductionPlan>(held).of(p), p[2] != nullptr ? *f32(p[2]) : 1.0f,
                                 f32(p[3]));
      },
      reduction(request));
}

// (terms of the main loss, terms) → seed
BoundKernel loss_seed(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        int64_t main = 0, own = 0;
        std::memcpy(&main, p[0], sizeof main);
        std::memcpy(&own, p[1], sizeof own);
        const double weight = plan_of<double>(held);
        *f32(p[2]) = own > 0
                         ? static_cast<float>(weight * static_cast<double>(main) / static_cast<double>(own))
                         : 0.0f;
      },
      request.view.attrs<graph::LossSeedAttrs>().weight);
}

// (x) → y
BoundKernel softcap(const BindRequest& request) {
  struct Plan {
    int64_t elements;
    float cap;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        if (p[1] != p[0]) std::memcpy(p[1], p[0], static_cast<size_t>(plan.elements) * sizeof(float));
        cpu::detail::cap_row(f32(p[1]), plan.elements, plan.cap);
      },
      Plan{request.view.in(0).shape.elements(),
           static_cast<float>(request.view.attrs<ops::SoftcapAttrs>().softcap)});
}

// Weights of logits alone.
std::vector<WantedEncoding> logits_encodings(const NodeView& view, const hardware::DeviceSpec& device) {
  return weight_encoding(cpu::GemmRole::kForward, 1, view, device);
}

// And that of dx behind it.
std::vector<WantedEncoding> logits_and_dx_encodings(const NodeView& view,
                                                    const hardware::DeviceSpec& device) {
  auto wanted = weight_encoding(cpu::GemmRole::kForward, 1, view, device);
  for (auto& more : weight_encoding(cpu::GemmRole::kInputGrad, 2, view, device))
    wanted.push_back(std::move(more));
  return wanted;
}

}  // namespace

std::span<const Binding> loss_bindings() {
  static const Binding kTable[] = {
      {&ops::kLinearCrossEntropy, linear_cross_entropy, logits_encodings},
      {&ops::kLinearCrossEntropyTrain, linear_cross_entropy_train, logits_and_dx_encodings},
      {&ops::kCrossEntropyStatistics, cross_entropy_statistics, logits_encodings},
      {&ops::kCrossEntropyLoss, cross_entropy_loss},
      {&ops::kCrossEntropyLossGrad, cross_entropy_loss_grad},
      {&ops::kCrossEntropyGradInput, cross_entropy_grad_input, logits_and_dx_encodings},
      {&ops::kCrossEntropyGradWeight, cross_entropy_grad_weight, logits_encodings},
      {&ops::kCrossEntropyGrad, cross_entropy_grad, logits_and_dx_encodings},
      {&graph::kLossSeed, loss_seed},
      {&ops::kSoftcap, softcap},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
