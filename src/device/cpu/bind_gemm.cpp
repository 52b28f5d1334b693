#include "base/error.h"
#include "device/cpu/bind.h"
#include "kernels/cpu/gemm.h"
#include "ops/ops.h"

namespace strata::device::cpu_bind {

using graph::Encoding;
using graph::NodeView;
using graph::Value;

std::vector<WantedEncoding> weight_encoding(cpu::GemmRole role, int input, const NodeView& view,
                                            const hardware::DeviceSpec& device) {
  const Value& weight = view.in(input);
  const DType dtype = view.in(0).dtype;
  const auto encoding = cpu::plan_weight_encoding(role, weight.shape[0], weight.shape[1], dtype, device);
  if (encoding.plain) return {};
  return {{input, {Encoding::Kind::kPacked, encoding.bytes, encoding.id}, dtype}};
}

cpu::WeightEncoding weight_encoding_of(const Value& packed, const hardware::DeviceSpec& device) {
  auto rows = cpu::plan_weight_rows(packed.shape[0], packed.shape[1]);
  if (rows.id == packed.encoding.layout) return rows;
  for (const auto role : {cpu::GemmRole::kForward, cpu::GemmRole::kInputGrad}) {
    auto encoding = cpu::plan_weight_encoding(role, packed.shape[0], packed.shape[1], packed.dtype, device);
    if (encoding.id == packed.encoding.layout) return encoding;
  }
  throw InternalError("no GEMM of this device wants the encoding {} of {}", packed.encoding.layout,
                      packed.name);
}

namespace {

std::shared_ptr<const cpu::GemmPlan> cached_plan(const BindRequest& request, const cpu::GemmSpec& spec) {
  const std::string key = fmt::format("gemm {} {} {} {} {} {} {} {} {} {}", static_cast<int>(spec.role),
                                      spec.m, spec.n, spec.k, name_of(spec.dtype), name_of(spec.out_dtype),
                                      spec.bias, spec.accumulate, spec.weight_rows, spec.rows_alone);
  auto& slot = request.cache[key];
  if (!slot) slot = std::make_shared<const cpu::GemmPlan>(cpu::plan_gemm(spec, request.device));
  return std::static_pointer_cast<const cpu::GemmPlan>(slot);
}

// Products of the stream may be cut into parts of their rows (program/row_chunks.h), which changes no bit.
// All programs of a set have one mesh.
bool may_be_cut(const NodeView& view) {
  return view.graph.mesh().size(graph::Axis::kTensor) > 1;
}

BoundKernel bound_gemm(const BindRequest& request, const cpu::GemmSpec& spec, Kernel run) {
  auto plan = cached_plan(request, spec);
  const int64_t scratch = plan->scratch_bytes;
  return {run, std::move(plan), scratch, instantiate<cpu::Gemm, cpu::GemmPlan>};
}

// (x, w, bias?) → y
BoundKernel linear(const BindRequest& request) {
  const NodeView& view = request.view;
  const cpu::GemmSpec spec{
      .role = cpu::GemmRole::kForward,
      .m = view.in(ops::Linear::kX).shape[0],
      .n = view.in(ops::Linear::kWeight).shape[0],
      .k = view.in(ops::Linear::kX).shape[1],
      .dtype = view.in(ops::Linear::kX).dtype,
      .out_dtype = view.out(ops::Linear::kY).dtype,
      .bias = view.has(ops::Linear::kBias),
      .weight_rows = cpu::prefers_weight_rows(view.in(ops::Linear::kX).shape[0],
                                              view.in(ops::Linear::kX).dtype, request.device),
      .rows_alone = may_be_cut(view)};
  return bound_gemm(request, spec, [](Launch&, void* gemm, std::byte* const* p) {
    instance_of<cpu::Gemm>(gemm).run({.a = p[0], .b = p[1], .bias = f32(p[2]), .c = p[3], .scratch = p[4]});
  });
}

std::vector<WantedEncoding> linear_encodings(const NodeView& view, const hardware::DeviceSpec& device) {
  if (cpu::prefers_weight_rows(view.in(ops::Linear::kX).shape[0], view.in(ops::Linear::kX).dtype, device)) {
    const auto rows =
        cpu::plan_weight_rows(view.in(ops::Linear::kWeight).shape[0], view.in(ops::Linear::kWeight).shape[1]);
    return {{1, {Encoding::Kind::kPacked, rows.bytes, rows.id}, DType::kBF16}};
  }
  return weight_encoding(cpu::GemmRole::kForward, 1, view, device);
}

// (dy, w) → dx
BoundKernel linear_grad_input(const BindRequest& request) {
  const NodeView& view = request.view;
  const cpu::GemmSpec spec{.role = cpu::GemmRole::kInputGrad,
                           .m = view.in(ops::LinearGradInput::kDy).shape[0],
                           .n = view.in(ops::LinearGradInput::kWeight).shape[0],
                           .k = view.in(ops::LinearGradInput::kWeight).shape[1],
                           .dtype = view.in(ops::LinearGradInput::kDy).dtype,
                           .out_dtype = view.out(ops::LinearGradInput::kDx).dtype,
                           .rows_alone = may_be_cut(view)};
  return bound_gemm(request, spec, [](Launch&, void* gemm, std::byte* const* p) {
    instance_of<cpu::Gemm>(gemm).run({.a = p[0], .b = p[1], .c = p[2], .scratch = p[3]});
  });
}

std::vector<WantedEncoding> linear_grad_input_encodings(const NodeView& view,
                                                        const hardware::DeviceSpec& device) {
  return weight_encoding(cpu::GemmRole::kInputGrad, 1, view, device);
}

// (dy, x) → dw
BoundKernel linear_grad_weight(const BindRequest& request) {
  const NodeView& view = request.view;
  const cpu::GemmSpec spec{.role = cpu::GemmRole::kWeightGrad,
                           .m = view.in(ops::LinearGradWeight::kDy).shape[0],
                           .n = view.in(ops::LinearGradWeight::kDy).shape[1],
                           .k = view.in(ops::LinearGradWeight::kX).shape[1],
                           .dtype = view.in(ops::LinearGradWeight::kDy).dtype,
                           .accumulate = request.accumulate[0]};
  return bound_gemm(request, spec, [](Launch&, void* gemm, std::byte* const* p) {
    instance_of<cpu::Gemm>(gemm).run({.a = p[0], .b = p[1], .c = p[2], .scratch = p[3]});
  });
}

// (master) → packed
BoundKernel pack_weight(const BindRequest& request) {
  BoundKernel kernel =
      bound([](Launch&, void* packer,
               std::byte* const* p) { instance_of<cpu::WeightPacker>(packer).pack(p[1], f32(p[0])); },
            weight_encoding_of(request.view.out(ops::PackWeight::kPacked), request.device));
  kernel.instantiate = instantiate<cpu::WeightPacker, cpu::WeightEncoding>;
  return kernel;
}

}  // namespace

std::span<const Binding> gemm_bindings() {
  static const Binding kTable[] = {
      {&ops::kLinear, linear, linear_encodings},
      {&ops::kLinearGradInput, linear_grad_input, linear_grad_input_encodings},
      {&ops::kLinearGradWeight, linear_grad_weight},
      {&ops::kPackWeight, pack_weight},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
