#include "ops/temper/temper.h"

#include "device/cpu/cpu.h"
#include "kernels/cpu/rope.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Temper>& node) {
  const graph::Value& qkv = *node.in.qkv;
  const cpu::TemperShape shape{.rows = qkv.shape[0],
                               .q_width = qkv.segments[0],
                               .width = qkv.shape[1],
                               .floor = node.attrs.floor,
                               .scale = static_cast<float>(node.attrs.scale),
                               .dtype = qkv.dtype};
  return node.kernel(
      [shape](const Operands<ops::Temper>& at) { cpu::temper(shape, at.out.y, at.in.qkv, at.in.positions); });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ChunkBegins>& node) {
  return node.kernel([rows = node.in.positions->shape[0],
                      size = static_cast<int32_t>(node.attrs.size)](const Operands<ops::ChunkBegins>& at) {
    const int32_t* const begins = at.in.document_begins;
    for (int64_t n = 0; n < rows; ++n)
      at.out.begins[n] = (begins != nullptr ? begins[n] : 0) + at.in.positions[n] / size * size;
  });
}

}  // namespace strata::device
