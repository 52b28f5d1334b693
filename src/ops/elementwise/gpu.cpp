#include "device/gpu/gpu.h"
#include "ops/elementwise/elementwise.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::Scale>& node) {
  return node.kernel([f = GpuElements("scale", *node.in.x, node.attrs.factor)](
                         const Operands<ops::Scale>& at) { f.run(at.launch, at.out.y, at.in.x); });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::AddRow>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [rows = x.shape[0], columns = x.shape[1], row = node.attrs.row,
       kernel = gpu::elementwise("add_row", x.dtype, x.shape.elements())](const Operands<ops::AddRow>& at) {
        start(at.launch, kernel,
              gpu::AddRowArgs{.out = at.out.y,
                              .x = at.in.x,
                              .row = at.in.table + row * columns,
                              .rows = rows,
                              .columns = columns});
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::AddRowGrad>& node) {
  const graph::Value& dy = *node.in.dy;
  const GpuColumnSums sums(dy.dtype, dy.shape[0], dy.shape[1]);
  return node.kernel(
      [sums, table = node.attrs, adds = node.adds.dtable](const Operands<ops::AddRowGrad>& at) {
        float* const dtable = at.out.dtable;
        if (!adds) gpu_queue(at.launch).clear(dtable, table.rows * sums.columns * size_of(DType::kF32));
        sums.run(at.launch, at.in.dy, dtable + table.row * sums.columns, true, at.scratch);
      },
      sums.scratch_bytes());
}

}  // namespace strata::device
