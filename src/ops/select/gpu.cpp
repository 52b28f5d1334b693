#include "device/gpu/gpu.h"
#include "ops/select/select.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::TakeRow>& node) {
  const graph::Value& row = *node.out.row;
  const int64_t columns = row.shape[1];
  return node.kernel(
      [columns, kernel = gpu::elementwise("take_row", row.dtype, columns)](const Operands<ops::TakeRow>& at) {
        start(at.launch, kernel,
              gpu::TakeRowArgs{.out = at.out.row, .x = at.in.x, .index = at.in.index, .columns = columns});
      });
}

}  // namespace strata::device
