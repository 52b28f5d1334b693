#include "device/gpu/gpu.h"
#include "ops/softcap/softcap.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::Softcap>& node) {
  return node.kernel([f = GpuElements("softcap", *node.in.x, node.attrs.softcap)](
                         const Operands<ops::Softcap>& at) { f.run(at.launch, at.out.y, at.in.x); });
}

}  // namespace strata::device
