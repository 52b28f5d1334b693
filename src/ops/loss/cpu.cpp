#include "ops/linear/cpu.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "ops/loss/loss.h"

namespace strata::device {
namespace {

// The operands that the op has.
template <typename Op>
cpu::LinearCrossEntropyArgs head_args(const Operands<Op>& at) {
  cpu::LinearCrossEntropyArgs args{.x = at.in.x,
                                   .w_forward = at.in.weight,
                                   .bias = at.in.bias,
                                   .targets = at.in.targets,
                                   .scratch = at.scratch};
  if constexpr (requires { at.in.weight_of_dx; }) args.w_input_grad = at.in.weight_of_dx;
  if constexpr (requires { at.in.seed; }) args.grad_scale = at.in.seed != nullptr ? *at.in.seed : 1.0f;
  if constexpr (requires { at.in.vocab_start; }) args.vocab_start = at.in.vocab_start;
  if constexpr (requires { at.in.dstatistics; }) {
    args.statistics = at.in.statistics;
    args.dstatistics = at.in.dstatistics;
  }
  if constexpr (requires { at.out.sum; }) {
    args.loss_sum = at.out.sum;
    args.count = at.out.count;
  }
  if constexpr (requires { at.out.per_token; }) {
    args.token_loss = at.out.per_token;
    args.greedy = at.out.greedy;
  }
  if constexpr (requires { at.out.statistics; }) args.out_statistics = at.out.statistics;
  if constexpr (requires { at.out.dx; }) args.dx = at.out.dx;
  if constexpr (requires { at.out.dw; }) {
    args.dw = at.out.dw;
    args.dbias = at.out.dbias;
  }
  return args;
}

template <typename Op>
BoundKernel bind_head(const Bind<Op>& node, cpu::CrossEntropyTask task) {
  const auto& in = node.in;
  cpu::LinearCrossEntropySpec spec{.tokens = in.x->shape[0],
                                   .hidden_size = in.x->shape[1],
                                   .vocab = in.weight->shape[0],
                                   .dtype = in.x->dtype,
                                   .task = task,
                                   .target_share = node.attrs.target_share,
                                   .softcap = static_cast<float>(node.attrs.softcap),
                                   .bias = in.bias.present()};
  if constexpr (requires { node.adds.sum; }) spec.accumulate_loss = node.adds.sum;
  if constexpr (requires { node.adds.dw; }) {
    spec.accumulate = node.adds.dw;
    spec.accumulate_bias = spec.bias && node.adds.dbias;
  }
  if constexpr (requires { in.vocab_start; }) {
    spec.parts = in.vocab_start ? in.vocab_start->shape[0] : 1;
    spec.vocabulary = node.attrs.vocabulary;
  }
  auto plan =
      std::make_shared<const cpu::LinearCrossEntropyPlan>(cpu::plan_linear_cross_entropy(spec, node.device));
  const int64_t scratch = plan->scratch_bytes;
  return node.template kernel_with<cpu::LinearCrossEntropy>(
      std::move(plan), [](cpu::LinearCrossEntropy& loss, const Operands<Op>& at) { loss.run(head_args(at)); },
      scratch);
}

template <typename Op>
Encodings<Op> head_encodings(const graph::View<Op>& node, const hardware::DeviceSpec& device) {
  if constexpr (requires { node.in.weight_of_dx; }) {
    return encodings_of<Op>(
        node, node.in.x->dtype, device,
        {{"weight", cpu::GemmRole::kForward}, {"weight_of_dx", cpu::GemmRole::kInputGrad}});
  } else {
    return encodings_of<Op>(node, node.in.x->dtype, device, {{"weight", cpu::GemmRole::kForward}});
  }
}

template <typename Op>
cpu::StatisticsArgs statistics_args(const Shape& shape, const Operands<Op>& at) {
  return {.tokens = shape[1], .parts = shape[0], .statistics = at.in.statistics, .targets = at.in.targets};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::LinearCrossEntropy>& node) {
  return bind_head(node, cpu::CrossEntropyTask::kLoss);
}
template <>
Encodings<ops::LinearCrossEntropy> encodings(Cpu, const graph::View<ops::LinearCrossEntropy>& node,
                                             const hardware::DeviceSpec& device) {
  return head_encodings(node, device);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LinearCrossEntropyTrain>& node) {
  return bind_head(node, cpu::CrossEntropyTask::kTraining);
}
template <>
Encodings<ops::LinearCrossEntropyTrain> encodings(Cpu, const graph::View<ops::LinearCrossEntropyTrain>& node,
                                                  const hardware::DeviceSpec& device) {
  return head_encodings(node, device);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossEntropyStatistics>& node) {
  return bind_head(node, cpu::CrossEntropyTask::kStatistics);
}
template <>
Encodings<ops::CrossEntropyStatistics> encodings(Cpu, const graph::View<ops::CrossEntropyStatistics>& node,
                                                 const hardware::DeviceSpec& device) {
  return head_encodings(node, device);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossEntropyGradInput>& node) {
  return bind_head(node, cpu::CrossEntropyTask::kInputGrad);
}
template <>
Encodings<ops::CrossEntropyGradInput> encodings(Cpu, const graph::View<ops::CrossEntropyGradInput>& node,
                                                const hardware::DeviceSpec& device) {
  return head_encodings(node, device);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossEntropyGradWeight>& node) {
  return bind_head(node, cpu::CrossEntropyTask::kWeightGrad);
}
template <>
Encodings<ops::CrossEntropyGradWeight> encodings(Cpu, const graph::View<ops::CrossEntropyGradWeight>& node,
                                                 const hardware::DeviceSpec& device) {
  return head_encodings(node, device);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossEntropyGrad>& node) {
  return bind_head(node, cpu::CrossEntropyTask::kGradients);
}
template <>
Encodings<ops::CrossEntropyGrad> encodings(Cpu, const graph::View<ops::CrossEntropyGrad>& node,
                                           const hardware::DeviceSpec& device) {
  return head_encodings(node, device);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossEntropyLoss>& node) {
  const Shape& shape = node.in.statistics->shape;
  return node.kernel(
      [shape, adds = node.adds.sum](const Operands<ops::CrossEntropyLoss>& at) {
        cpu::sum_statistics(statistics_args(shape, at), {.accumulate = adds,
                                                         .loss_sum = at.out.sum,
                                                         .count = at.out.count,
                                                         .token_loss = at.out.per_token,
                                                         .greedy = at.out.greedy,
                                                         .scratch = reinterpret_cast<double*>(at.scratch)});
      },
      shape[1] * size_of(DType::kF64));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossEntropyLossGrad>& node) {
  return node.kernel([shape = node.in.statistics->shape](const Operands<ops::CrossEntropyLossGrad>& at) {
    cpu::sum_statistics_grad(statistics_args(shape, at), at.in.seed != nullptr ? *at.in.seed : 1.0f,
                             at.out.dstatistics);
  });
}

}  // namespace strata::device
