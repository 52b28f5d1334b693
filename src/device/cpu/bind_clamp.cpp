#include "device/cpu/bind.h"
#include "kernels/cpu/clamp.h"
#include "ops/clamp.h"

namespace strata::device::cpu_bind {
namespace {

struct ClampPlan {
  int64_t n;
  float limit;
  DType dtype;
};

ClampPlan clamp_plan(const BindRequest& request) {
  const graph::Value& x = request.view.in(0);
  return {x.shape.elements(), static_cast<float>(request.view.attrs<ops::ClampAttrs>().limit), x.dtype};
}

// (x) → y
BoundKernel clamp(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ClampPlan>(plan);
        cpu::clamp_forward(call.n, p[1], p[0], call.limit, call.dtype);
      },
      clamp_plan(request));
}

// (dy, x) → dx
BoundKernel clamp_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ClampPlan>(plan);
        cpu::clamp_backward(call.n, p[2], p[0], p[1], call.limit, call.dtype);
      },
      clamp_plan(request));
}

cpu::ClampedGate gate_of(const BindRequest& request, int input) {
  const graph::Value& gate_up = request.view.in(input);
  const auto& attrs = request.view.attrs<ops::ClampedGatedAttrs>();
  return {.rows = gate_up.shape[0],
          .ffn = gate_up.shape[1] / 2,
          .alpha = static_cast<float>(attrs.alpha),
          .limit = static_cast<float>(attrs.limit),
          .dtype = gate_up.dtype};
}

// (gate_up) → y
BoundKernel clamped_gated(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::clamped_gated_forward(plan_of<cpu::ClampedGate>(plan), p[1], p[0]);
      },
      gate_of(request, ops::ClampedGated::kGateUp));
}

// (dy, gate_up) → d_gate_up
BoundKernel clamped_gated_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::clamped_gated_backward(plan_of<cpu::ClampedGate>(plan), p[2], p[0], p[1]);
      },
      gate_of(request, ops::ClampedGatedGrad::kGateUp));
}

}  // namespace

std::span<const Binding> clamp_bindings() {
  static const Binding kTable[] = {
      {&ops::kClamp, clamp},
      {&ops::kClampGrad, clamp_grad},
      {&ops::kClampedGated, clamped_gated},
      {&ops::kClampedGatedGrad, clamped_gated_grad},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
