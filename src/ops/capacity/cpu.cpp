#include "kernels/cpu/capacity.h"

#include "device/cpu/cpu.h"
#include "ops/capacity/capacity.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::LimitExperts>& node) {
  const ops::CapacityAttrs& attrs = node.attrs;
  const Shape& ids = node.in.ids->shape;
  const cpu::CapacityShape shape{.tokens = ids[0],
                                 .k = ids[1],
                                 .experts = attrs.experts,
                                 .rows = attrs.rows,
                                 .capacity = attrs.capacity,
                                 .greatest = attrs.keep == ops::CapacityAttrs::Keep::kGreatest,
                                 .sequence = attrs.idle.sequence,
                                 .idle = attrs.idle.count};
  return node.kernel(
      [shape](const Operands<ops::LimitExperts>& at) {
        cpu::limit_experts(shape, at.out.kept, at.in.ids, at.in.weights, at.in.begins, at.scratch);
      },
      cpu::limit_experts_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::WeightsOfKept>& node) {
  return node.kernel([slots = node.in.ids->shape.elements()](const Operands<ops::WeightsOfKept>& at) {
    cpu::weights_of_kept(slots, at.out.kept, at.in.weights, at.in.ids);
  });
}

}  // namespace strata::device
