#include "optim/cpu.h"

#include "kernels/cpu/weight_encoding.h"
#include "ops/linear/cpu.h"
#include "optim/adamw/adamw.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<optim::AdamWUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const auto arrays = [own](const Operands<optim::AdamWUpdate>& at) -> cpu::AdamWArrays {
    return {at.out.parameter + own.first, at.out.m + own.state_first, at.out.v + own.state_first,
            at.in.gradient + own.first};
  };
  const cpu::AdamWConstants constants =
      adamw_constants(node.attrs.rule.optimizer.as<optim::AdamW>(), node.attrs.rule);
  std::vector<cpu::WeightEncoding> encodings;
  for (const graph::Ref& encoded : node.out.encodings)
    encodings.push_back(weight_encoding_of(*encoded, node.device));
  if (encodings.empty())
    return node.kernel([own, arrays, constants](const Operands<optim::AdamWUpdate>& at) {
      cpu::adamw_update(own.count, arrays(at), scalars_at(at.in.scalars), constants);
    });
  // All rows, and packed layouts of the parameter.
  return node.kernel([own, arrays, constants, encodings](const Operands<optim::AdamWUpdate>& at) {
    cpu::adamw_update_encoded(own.rows, own.columns, arrays(at), scalars_at(at.in.scalars), constants,
                              encodings, at.out.encodings.data());
  });
}

// A whole matrix, into the layout of bf16 GEMMs.
template <>
bool writes(Cpu, const graph::View<optim::AdamWUpdate>& node, const graph::Value& encoded,
            const hardware::DeviceSpec& device) {
  const Shape& shape = node.in.parameter->shape;
  return shape.rank() == 2 && cpu::encodes_by_rows(weight_encoding_of(encoded, device)) &&
         optim::row_range(node.attrs, shape).rows == shape[0];
}

}  // namespace strata::device
