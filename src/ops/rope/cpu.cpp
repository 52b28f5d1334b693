#include "kernels/cpu/rope.h"

#include <cstring>

#include "base/parallel.h"
#include "device/cpu/cpu.h"
#include "ops/rope/rope.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::RopeTable>& node) {
  return node.kernel([attrs = node.attrs](const Operands<ops::RopeTable>& at) {
    cpu::fill_rope_table(at.out.table, attrs.positions, attrs.frequencies, attrs.magnitude);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::Rope>& node) {
  const graph::Value& x = *node.in.x;
  const ops::RopeAttrs& attrs = node.attrs;
  const cpu::RopeShape shape{
      .rows = x.shape[0],
      .heads = (x.segments.empty() ? x.shape[1] : x.segments[0] + x.segments[1]) / attrs.head_dim,
      .head_dim = attrs.head_dim,
      .rotary_dim = 2 * node.in.table->shape[1],
      .row_stride = x.shape[1],
      .dtype = x.dtype,
      .first = attrs.first,
      .adjacent = attrs.adjacent};
  return node.kernel([shape, inverse = attrs.inverse, bytes = x.bytes()](const Operands<ops::Rope>& at) {
    std::byte* const to = at.out.qkv;
    if (to != at.in.x) {  // v, which does not rotate, is copied too
      parallel_ranges(bytes, 1 << 20, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, at.in.x + begin, static_cast<size_t>(end - begin));
      });
    }
    cpu::rope(shape, to, to, at.in.table, at.in.positions, inverse);
  });
}

}  // namespace strata::device
