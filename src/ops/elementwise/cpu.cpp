#include "kernels/cpu/elementwise.h"

#include <utility>
#include <vector>

#include "device/cpu/cpu.h"
#include "ops/elementwise/elementwise.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Scale>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel([n = x.shape.elements(), dtype = x.dtype,
                      factor = static_cast<float>(node.attrs.factor)](const Operands<ops::Scale>& at) {
    cpu::scale(at.out.y, at.in.x, factor, n, dtype);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ScaleParts>& node) {
  const graph::Value& x = *node.in.x;
  std::vector<float> row;
  const std::vector<int64_t> parts = x.parts(1);
  for (size_t i = 0; i < parts.size(); ++i)
    row.insert(row.end(), static_cast<size_t>(parts[i]), static_cast<float>(node.attrs.factors[i]));
  return node.kernel([rows = x.shape[0], columns = x.shape[1], dtype = x.dtype,
                      row = std::move(row)](const Operands<ops::ScaleParts>& at) {
    cpu::scale_columns(at.out.y, at.in.x, row.data(), rows, columns, dtype);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::AddRow>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel([rows = x.shape[0], columns = x.shape[1], dtype = x.dtype,
                      row = node.attrs.row](const Operands<ops::AddRow>& at) {
    cpu::add_row(at.out.y, at.in.x, at.in.table + row * columns, rows, columns, dtype);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::AddRowGrad>& node) {
  const graph::Value& dy = *node.in.dy;
  return node.kernel(
      [rows = dy.shape[0], columns = dy.shape[1], dtype = dy.dtype, table = node.attrs,
       adds = node.adds.dtable](const Operands<ops::AddRowGrad>& at) {
        float* const dtable = at.out.dtable;
        if (!adds) cpu::fill_zero(dtable, table.rows * columns * int64_t{sizeof(float)});
        cpu::column_sums(rows, columns, columns, dtable + table.row * columns, at.in.dy, dtype, adds,
                         at.scratch);
      },
      cpu::column_sums_scratch_bytes(dy.shape[0], dy.shape[1]));
}

}  // namespace strata::device
