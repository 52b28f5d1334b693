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

}  // namespace

std::span<const Binding> clamp_bindings() {
  static const Binding kTable[] = {
      {&ops::kClamp, clamp},
      {&ops::kClampGrad, clamp_grad},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
