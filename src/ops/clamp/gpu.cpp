#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"
#include "ops/clamp/clamp.h"

namespace strata::device {
namespace {

// `of`: a value as wide as the gate.
struct ClampedGate {
  gpu::KernelLaunch kernel;
  gpu::ClampedGatedArgs args;

  ClampedGate(const graph::Value& of, const ops::ClampedGatedAttrs& attrs)
      : kernel(gpu::clamped_gated(of.dtype, of.shape[0], of.shape[1])),
        args{.out = nullptr,
             .dy = nullptr,
             .x = nullptr,
             .rows = of.shape[0],
             .width = of.shape[1],
             .alpha = static_cast<float>(attrs.alpha),
             .limit = static_cast<float>(attrs.limit)} {}
  void run(const Launch& launch, void* out, const void* dy, const void* x) const {
    gpu::ClampedGatedArgs now = args;
    now.out = out;
    now.dy = dy;
    now.x = x;
    start(launch, kernel, now);
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::Clamp>& node) {
  return node.kernel([f = GpuElements("clamp", *node.in.x, node.attrs.limit)](
                         const Operands<ops::Clamp>& at) { f.run(at.launch, at.out.y, at.in.x); });
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ClampGrad>& node) {
  return node.kernel(
      [f = GpuElements("clamp_gradient", *node.in.x, node.attrs.limit)](const Operands<ops::ClampGrad>& at) {
        f.run(at.launch, at.out.dx, at.in.dy, at.in.x);
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ClampedGated>& node) {
  return node.kernel([f = ClampedGate(*node.out.y, node.attrs)](const Operands<ops::ClampedGated>& at) {
    f.run(at.launch, at.out.y, nullptr, at.in.gate_up);
  });
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ClampedGatedGrad>& node) {
  return node.kernel([f = ClampedGate(*node.in.dy, node.attrs)](const Operands<ops::ClampedGatedGrad>& at) {
    f.run(at.launch, at.out.d_gate_up, at.in.dy, at.in.gate_up);
  });
}

}  // namespace strata::device
