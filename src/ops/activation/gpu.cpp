#include <algorithm>

#include "device/gpu/gpu.h"
#include "ops/activation/activation.h"

namespace strata::device {
namespace {

struct Activated {
  gpu::KernelLaunch kernel;
  gpu::ActivationArgs args;

  Activated(bool gated, ActivationKind kind, DType dtype, int64_t rows, int64_t width)
      : kernel(gpu::activation(gated, dtype, rows, width)),
        args{.out = nullptr,
             .dy = nullptr,
             .x = nullptr,
             .rows = rows,
             .width = width,
             .kind = static_cast<int32_t>(kind)} {}
  void run(const Launch& launch, void* out, const void* dy, const void* x) const {
    gpu::ActivationArgs now = args;
    now.out = out;
    now.dy = dy;
    now.x = x;
    start(launch, kernel, now);
  }
};

// Elements are independent, but a value that is rows of another is only aligned as its rows are: their width
// chooses the accesses.
Activated of_elements(ActivationKind kind, const graph::Value& x) {
  const int64_t width = x.shape[x.shape.rank() - 1];
  return {false, kind, x.dtype, x.shape.elements() / std::max<int64_t>(width, 1), width};
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::Activation>& node) {
  return node.kernel([f = of_elements(node.attrs.kind, *node.in.x)](const Operands<ops::Activation>& at) {
    f.run(at.launch, at.out.y, nullptr, at.in.x);
  });
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ActivationGrad>& node) {
  return node.kernel([f = of_elements(node.attrs.kind, *node.in.x)](const Operands<ops::ActivationGrad>& at) {
    f.run(at.launch, at.out.dx, at.in.dy, at.in.x);
  });
}
template <>
BoundKernel bind(Gpu, const Bind<ops::Gated>& node) {
  const graph::Value& y = *node.out.y;
  return node.kernel(
      [f = Activated(true, node.attrs.kind, y.dtype, y.shape[0], y.shape[1])](
          const Operands<ops::Gated>& at) { f.run(at.launch, at.out.y, nullptr, at.in.gate_up); });
}
template <>
BoundKernel bind(Gpu, const Bind<ops::GatedGrad>& node) {
  const graph::Value& dy = *node.in.dy;
  return node.kernel([f = Activated(true, node.attrs.kind, dy.dtype, dy.shape[0], dy.shape[1])](
                         const Operands<ops::GatedGrad>& at) {
    f.run(at.launch, at.out.d_gate_up, at.in.dy, at.in.gate_up);
  });
}

}  // namespace strata::device
