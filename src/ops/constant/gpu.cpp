#include "device/gpu/gpu.h"
#include "ops/constant/constant.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::Constant>& node) {
  const int64_t n = node.attrs.elements;
  return node.kernel([n, factor = static_cast<float>(node.attrs.number),
                      kernel = gpu::elementwise("fill", DType::kF32, n)](const Operands<ops::Constant>& at) {
    start(at.launch, kernel,
          gpu::ElementArgs{.out = at.out.values, .a = nullptr, .b = nullptr, .n = n, .factor = factor});
  });
}

}  // namespace strata::device
