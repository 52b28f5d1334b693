#include "kernels/cpu/soft_experts.h"

#include <algorithm>

#include "device/cpu/cpu.h"
#include "ops/soft_experts/soft_experts.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::SoftShape soft_shape(const Bind<Op>& node, const graph::Value& x) {
  const Shape& logits = node.in.logits->shape;
  return {.groups = logits[0] / node.attrs.rows,
          .rows = node.attrs.rows,
          .slots = logits[1],
          .of_expert = logits[1] / node.attrs.experts,
          .columns = x.shape[1],
          .dtype = x.dtype};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::SoftDispatch>& node) {
  const cpu::SoftShape shape = soft_shape(node, *node.in.x);
  return node.kernel(
      [shape](const Operands<ops::SoftDispatch>& at) {
        cpu::soft_dispatch(shape, at.out.slots, at.out.experts, at.in.x, at.in.logits, at.scratch);
        std::fill_n(at.out.weights, shape.groups * shape.slots, 1.0f);
      },
      cpu::soft_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SoftDispatchGrad>& node) {
  const cpu::SoftShape shape = soft_shape(node, *node.in.x);
  return node.kernel(
      [shape](const Operands<ops::SoftDispatchGrad>& at) {
        cpu::soft_dispatch_backward(shape, at.out.dx, at.out.dlogits, at.in.dslots, at.in.x, at.in.logits,
                                    at.scratch);
      },
      cpu::soft_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SoftCombine>& node) {
  const cpu::SoftShape shape = soft_shape(node, *node.in.h);
  return node.kernel(
      [shape](const Operands<ops::SoftCombine>& at) {
        cpu::soft_combine(shape, at.out.y, at.in.h, at.in.logits, at.scratch);
      },
      cpu::soft_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SoftCombineGrad>& node) {
  const cpu::SoftShape shape = soft_shape(node, *node.in.h);
  return node.kernel(
      [shape](const Operands<ops::SoftCombineGrad>& at) {
        cpu::soft_combine_backward(shape, at.out.dh, at.out.dlogits, at.in.dy, at.in.h, at.in.logits,
                                   at.scratch);
      },
      cpu::soft_scratch_bytes(shape));
}

}  // namespace strata::device
