#include "kernels/cpu/expert_bias.h"

#include "device/cpu/cpu.h"
#include "ops/expert_bias/expert_bias.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::ExpertBiasShape bias_shape(const Bind<Op>& node, const graph::Value& rows, bool accumulate = false) {
  return {.tokens = ops::tokens_of(node),
          .slots = ops::slots_of(node),
          .experts = node.attrs.experts,
          .columns = rows.shape[1],
          .dtype = rows.dtype,
          .accumulate = accumulate};
}
template <typename Op>
cpu::BiasSlots bias_slots(const Operands<Op>& at) {
  return {at.in.ids, at.in.offsets};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertBias>& node) {
  return node.kernel([shape = bias_shape(node, *node.in.x)](const Operands<ops::ExpertBias>& at) {
    cpu::add_expert_bias(shape, at.out.y, at.in.x, bias_slots(at), at.in.weights, at.in.bias);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertBiasGrad>& node) {
  return node.kernel(
      [shape = bias_shape(node, *node.in.dy, node.adds.dbias)](const Operands<ops::ExpertBiasGrad>& at) {
        cpu::expert_bias_gradient(shape, at.out.dbias, at.in.dy, bias_slots(at), at.in.weights);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertBiasGradWeights>& node) {
  return node.kernel([shape = bias_shape(node, *node.in.dy)](const Operands<ops::ExpertBiasGradWeights>& at) {
    cpu::expert_bias_weights_gradient(shape, at.out.dweights, at.in.dy, bias_slots(at), at.in.bias);
  });
}

}  // namespace strata::device
