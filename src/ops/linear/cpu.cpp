#include "ops/linear/cpu.h"

#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "ops/linear/linear.h"

namespace strata::device {

cpu::WeightEncoding weight_encoding_of(const graph::Value& packed, const hardware::DeviceSpec& device) {
  auto rows = cpu::plan_weight_rows(packed.shape[0], packed.shape[1]);
  if (rows.id == packed.encoding.layout) return rows;
  for (const auto role : {cpu::GemmRole::kForward, cpu::GemmRole::kInputGrad}) {
    auto encoding = cpu::plan_weight_encoding(role, packed.shape[0], packed.shape[1], packed.dtype, device);
    if (encoding.id == packed.encoding.layout) return encoding;
  }
  throw InternalError("no GEMM of this device reads the layout {} of {}", packed.encoding.layout,
                      packed.name);
}

namespace {

template <typename Op, typename Run>
BoundKernel bind_gemm(const Bind<Op>& node, const cpu::GemmSpec& spec, Run run) {
  auto& slot = node.cache[fmt::format("gemm {} {} {} {} {} {} {} {} {} {}", static_cast<int>(spec.role),
                                      spec.m, spec.n, spec.k, name_of(spec.dtype), name_of(spec.out_dtype),
                                      spec.bias, spec.accumulate, spec.weight_rows, spec.rows_alone)];
  if (!slot) slot = std::make_shared<const cpu::GemmPlan>(cpu::plan_gemm(spec, node.device));
  auto plan = std::static_pointer_cast<const cpu::GemmPlan>(slot);
  const int64_t scratch = plan->scratch_bytes;
  return node.template kernel_with<cpu::Gemm>(std::move(plan), run, scratch);
}

// Matmuls of the hidden states may be cut into chunks of rows (program/row_chunks.h), which changes no bit.
// All programs of a set have one mesh.
bool may_be_cut(const graph::Graph& graph) {
  return graph.mesh().size(graph::Axis::kTensor) > 1;
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::Linear>& node) {
  const graph::Value& x = *node.in.x;
  return bind_gemm(
      node,
      {.role = cpu::GemmRole::kForward,
       .m = x.shape[0],
       .n = node.in.weight->shape[0],
       .k = x.shape[1],
       .dtype = x.dtype,
       .out_dtype = node.out.y->dtype,
       .bias = node.in.bias.present(),
       .weight_rows = cpu::prefers_weight_rows(x.shape[0], x.dtype, node.device),
       .rows_alone = may_be_cut(node.graph)},
      [](cpu::Gemm& gemm, const Operands<ops::Linear>& at) {
        gemm.run({.a = at.in.x, .b = at.in.weight, .bias = at.in.bias, .c = at.out.y, .scratch = at.scratch});
      });
}

template <>
Encodings<ops::Linear> encodings(Cpu, const graph::View<ops::Linear>& node,
                                 const hardware::DeviceSpec& device) {
  const graph::Value& x = *node.in.x;
  if (!cpu::prefers_weight_rows(x.shape[0], x.dtype, device))
    return encodings_of<ops::Linear>(node, x.dtype, device, {{"weight", cpu::GemmRole::kForward}});
  const auto rows = cpu::plan_weight_rows(node.in.weight->shape[0], node.in.weight->shape[1]);
  return {{"weight", {graph::Encoding::Kind::kPacked, rows.bytes, rows.id}, DType::kBF16}};
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LinearGradInput>& node) {
  const graph::Value &dy = *node.in.dy, &weight = *node.in.weight;
  return bind_gemm(node,
                   {.role = cpu::GemmRole::kInputGrad,
                    .m = dy.shape[0],
                    .n = weight.shape[0],
                    .k = weight.shape[1],
                    .dtype = dy.dtype,
                    .out_dtype = node.out.dx->dtype,
                    .rows_alone = may_be_cut(node.graph)},
                   [](cpu::Gemm& gemm, const Operands<ops::LinearGradInput>& at) {
                     gemm.run({.a = at.in.dy, .b = at.in.weight, .c = at.out.dx, .scratch = at.scratch});
                   });
}

template <>
Encodings<ops::LinearGradInput> encodings(Cpu, const graph::View<ops::LinearGradInput>& node,
                                          const hardware::DeviceSpec& device) {
  return encodings_of<ops::LinearGradInput>(node, node.in.dy->dtype, device,
                                            {{"weight", cpu::GemmRole::kInputGrad}});
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LinearGradWeight>& node) {
  const graph::Value& dy = *node.in.dy;
  return bind_gemm(node,
                   {.role = cpu::GemmRole::kWeightGrad,
                    .m = dy.shape[0],
                    .n = dy.shape[1],
                    .k = node.in.x->shape[1],
                    .dtype = dy.dtype,
                    .accumulate = node.adds.dw},
                   [](cpu::Gemm& gemm, const Operands<ops::LinearGradWeight>& at) {
                     gemm.run({.a = at.in.dy, .b = at.in.x, .c = at.out.dw, .scratch = at.scratch});
                   });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ColumnSums>& node) {
  const graph::Value& dy = *node.in.dy;
  return node.kernel(
      [rows = dy.shape[0], columns = dy.shape[1], dtype = dy.dtype,
       adds = node.adds.sums](const Operands<ops::ColumnSums>& at) {
        cpu::column_sums(rows, columns, columns, at.out.sums, at.in.dy, dtype, adds, at.scratch);
      },
      cpu::column_sums_scratch_bytes(dy.shape[0], dy.shape[1]));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::PackWeight>& node) {
  auto plan = std::make_shared<const cpu::WeightEncoding>(weight_encoding_of(*node.out.packed, node.device));
  return node.kernel_with<cpu::WeightPacker>(
      std::move(plan),
      [](cpu::WeightPacker& packer, const Operands<ops::PackWeight>& at) {
        packer.pack(at.out.packed, at.in.weight);
      },
      0);
}

}  // namespace strata::device
