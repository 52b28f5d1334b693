#include "device/gpu/gpu.h"
#include "ops/clamp/clamp.h"

namespace strata::device {

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

}  // namespace strata::device
