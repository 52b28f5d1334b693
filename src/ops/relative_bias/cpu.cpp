#include "kernels/cpu/relative_bias.h"

#include "device/cpu/cpu.h"
#include "ops/relative_bias/relative_bias.h"

namespace strata::device {
namespace {

cpu::RelativeBiasShape relative_bias_of(const Shape& table, const ops::RelativeBiasAttrs& attrs) {
  return {.buckets = table[0],
          .heads = table[1],
          .max_distance = attrs.max_distance,
          .bidirectional = attrs.bidirectional,
          .first = attrs.first,
          .last = attrs.last};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::RelativeBias>& node) {
  return node.kernel(
      [shape = relative_bias_of(node.in.table->shape, node.attrs)](const Operands<ops::RelativeBias>& at) {
        cpu::relative_bias(shape, at.out.bias, at.in.table);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RelativeBiasGrad>& node) {
  return node.kernel([shape = relative_bias_of(node.out.dtable->shape, node.attrs),
                      adds = node.adds.dtable](const Operands<ops::RelativeBiasGrad>& at) {
    cpu::relative_bias_backward(shape, at.out.dtable, at.in.dbias, adds);
  });
}

}  // namespace strata::device
