// Matmuls of quantised operands: c[rows, cols] = Σ_d a(row, d) · b(col, d) (+ bias[col]), with a and b in codes of at most 8
// bits with scales, in any mix of rules and orientations. The matmuls of a linear layer:
//
//   role           a                          b
//   forward        x[tokens, inputs]          w[outputs, inputs]
//   input grad     dy[tokens, outputs]        w, depth_first; for rules along rows its copy along columns
//   weight grad    dy along columns           x along columns
//
// Values are decoded as they are packed into panels; all are exact there, in fp32 and in bf16 (scaled_operand.h). Sums
// are fp32: those of each step of the depth are scaled and added. Steps end where scales change; their lengths follow
// from the sizes, so a row's bits depend neither on the other rows, nor on their number, nor on the threads. On
// processors with fast bf16 dot products the instruction adds (bf16_dot.h), else fp32 multiply-adds. NaN and infinity in
// codes or scales propagate as in dequantize(). Any size may be 0.
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/scaled_operand.h"
#include "quantize/partial_sums.h"
#include "tensor/dtype.h"

namespace strata::cpu {

using quantize::PartialSums;

struct ScaledGemmSpec {
  int64_t rows = 0, cols = 0, depth = 0;
  ScaledOperand a, b;
  DType out_dtype = DType::kF32;  // kF32 or kBF16
  bool bias = false;              // fp32, a number a column
  bool accumulate = false;        // c +=, fp32 only
  PartialSums sums = PartialSums::kF32;
};

// Data, a function of sizes and a DeviceSpec.
struct ScaledGemmPlan {
  ScaledGemmSpec spec;
  GemmCost cost;
  detail::CodedOperand a, b;
  detail::PanelGemm panels;
  int64_t a_scales_at = 0, b_scales_at = 0;  // bytes from the start of scratch
  int64_t scratch_bytes = 0;
};

// Throws InternalError for an invalid specification: among others for an operand whose scales change from one
// depth to the next unless they are powers of two.
ScaledGemmPlan plan_scaled_gemm(const ScaledGemmSpec& spec, const hardware::DeviceSpec& device);

// `scratch`: plan.scratch_bytes, aligned to 64 bytes. Does not allocate; c must not overlap the operands. Throws
// InternalError on a plan for another processor.
void run_scaled_gemm(const ScaledGemmPlan& plan, const ScaledMatrix& a, const ScaledMatrix& b,
                     const float* bias, void* c, void* scratch);

}  // namespace strata::cpu
