#include "device/gpu/gpu.h"
#include "graph/sum.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<graph::Add>& node) {
  return node.kernel([f = GpuElements("add", *node.in.a)](const Operands<graph::Add>& at) {
    f.run(at.launch, at.out.sum, at.in.a, at.in.b);
  });
}

}  // namespace strata::device
