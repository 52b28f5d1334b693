#include "device/gpu/gpu.h"
#include "graph/sum.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<graph::Add>& node) {
  const int64_t n = node.in.a->shape.elements();
  return node.kernel(
      [n, kernel = gpu::elementwise("add", node.in.a->dtype, n)](const Operands<graph::Add>& at) {
        start(at.launch, kernel,
              gpu::ElementArgs{.out = at.out.sum, .a = at.in.a, .b = at.in.b, .n = n, .factor = 1});
      });
}

}  // namespace strata::device
