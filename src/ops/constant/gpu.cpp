#include "device/gpu/gpu.h"
#include "ops/constant/constant.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::Constant>& node) {
  return node.kernel([f = GpuElements("fill", *node.out.values, node.attrs.number)](
                         const Operands<ops::Constant>& at) { f.run(at.launch, at.out.values); });
}

}  // namespace strata::device
