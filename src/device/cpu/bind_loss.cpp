#include <cstring>

#include "device/cpu/bind.h"
#include "graph/loss_seed.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/softmax_loss.h"
#include "ops/ops.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;

BoundKernel bound_loss(const BindRequest& request, bool gradients, bool bias, Kernel run) {
  const NodeView& view = request.view;
  auto plan = cpu::plan_linear_cross_entropy(
      {.tokens = view.in(0).shape[0],
       .width = view.in(0).shape[1],
       .vocab = view.in(1).shape[0],
       .dtype = view.in(0).dtype,
       .gradients = gradients,
       .accumulate = gradients && request.accumulate[ops::LinearCrossEntropyTrain::kDweight],
       .accumulate_loss = request.accumulate[ops::LinearCrossEntropy::kSum],
       .softcap = static_cast<float>(view.attrs<ops::LinearCrossEntropyAttrs>().softcap),
       .bias = bias,
       .accumulate_bias = gradients && bias && request.accumulate[ops::LinearCrossEntropyTrain::kDbias]},
      request.device);
  const int64_t scratch = plan.scratch_bytes;
  BoundKernel kernel = bound(run, std::move(plan), scratch);
  kernel.instantiate = instantiate<cpu::LinearCrossEntropy, cpu::LinearCrossEntropyPlan>;
  return kernel;
}

// (x, w, targets, bias?) → sum, count, per_token?, greedy?
BoundKernel linear_cross_entropy(const BindRequest& request) {
  return bound_loss(
      request, false, request.view.has(ops::LinearCrossEntropy::kBias),
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
  return bound_loss(
      request, true, request.view.has(ops::LinearCrossEntropyTrain::kBias),
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

std::vector<WantedEncoding> linear_cross_entropy_encodings(const NodeView& view,
                                                           const hardware::DeviceSpec& device) {
  return weight_encoding(cpu::GemmRole::kForward, 1, view, device);
}

std::vector<WantedEncoding> linear_cross_entropy_train_encodings(const NodeView& view,
                                                                 const hardware::DeviceSpec& device) {
  auto wanted = weight_encoding(cpu::GemmRole::kForward, 1, view, device);
  for (auto& more : weight_encoding(cpu::GemmRole::kInputGrad, 2, view, device))
    wanted.push_back(std::move(more));
  return wanted;
}

}  // namespace

std::span<const Binding> loss_bindings() {
  static const Binding kTable[] = {
      {&ops::kLinearCrossEntropy, linear_cross_entropy, linear_cross_entropy_encodings},
      {&ops::kLinearCrossEntropyTrain, linear_cross_entropy_train, linear_cross_entropy_train_encodings},
      {&graph::kLossSeed, loss_seed},
      {&ops::kSoftcap, softcap},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
