#include <memory>

#include "device/cpu/cpu.h"
#include "kernels/cpu/scaled_gemm.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::device {
namespace {

// The matmul of two operands whose results are `out`, [rows, columns].
std::shared_ptr<const cpu::ScaledGemmPlan> plan_of(const ops::ScaledAttrs& attrs, const graph::Value& first,
                                                   const graph::Value& out, bool bias, bool adds,
                                                   const hardware::DeviceSpec& device) {
  return std::make_shared<const cpu::ScaledGemmPlan>(
      cpu::plan_scaled_gemm({.rows = out.shape[0],
                             .cols = out.shape[1],
                             .depth = first.shape[attrs.first.across ? 0 : 1],
                             .a = {.rule = attrs.first.rule, .depth_first = attrs.first.across},
                             .b = {.rule = attrs.second.rule, .depth_first = attrs.second.across},
                             .out_dtype = out.dtype,
                             .bias = bias,
                             .accumulate = adds,
                             .sums = attrs.sums},
                            device));
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledLinear>& node) {
  auto plan = plan_of(node.attrs, *node.in.x, *node.out.y, node.in.bias.present(), false, node.device);
  const int64_t scratch = plan->scratch_bytes;
  return node.kernel(
      [plan = std::move(plan)](const Operands<ops::ScaledLinear>& at) {
        cpu::run_scaled_gemm(*plan, {at.in.x, at.in.x_scales, at.in.x_greatest},
                             {at.in.weight, at.in.weight_scales, at.in.weight_greatest}, at.in.bias, at.out.y,
                             at.scratch);
      },
      scratch);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledLinearGradInput>& node) {
  auto plan = plan_of(node.attrs, *node.in.dy, *node.out.dx, false, false, node.device);
  const int64_t scratch = plan->scratch_bytes;
  return node.kernel(
      [plan = std::move(plan)](const Operands<ops::ScaledLinearGradInput>& at) {
        cpu::run_scaled_gemm(*plan, {at.in.dy, at.in.dy_scales, at.in.dy_greatest},
                             {at.in.weight, at.in.weight_scales, at.in.weight_greatest}, nullptr, at.out.dx,
                             at.scratch);
      },
      scratch);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledLinearGradWeight>& node) {
  auto plan = plan_of(node.attrs, *node.in.dy, *node.out.dw, false, node.adds.dw, node.device);
  const int64_t scratch = plan->scratch_bytes;
  return node.kernel(
      [plan = std::move(plan)](const Operands<ops::ScaledLinearGradWeight>& at) {
        cpu::run_scaled_gemm(*plan, {at.in.dy, at.in.dy_scales, at.in.dy_greatest},
                             {at.in.x, at.in.x_scales, at.in.x_greatest}, nullptr, at.out.dw, at.scratch);
      },
      scratch);
}

}  // namespace strata::device
