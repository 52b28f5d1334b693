// Grouped matmuls of a mixture of experts on quantised operands: the six roles of experts.h, with codes and scales in
// place of activations and weights. Results are those of scaled_gemm on each expert's rows.
//
//   role                       a                        b
//   kIn, kOut                  rows of x or h           w[experts · outputs, inputs]
//   kInGradInput,              rows of dy               w; or, for rules along rows, its copy along columns
//   kOutGradInput                                       [inputs, experts · outputs]
//   kInGradWeight,             rows of dy               rows of x or h
//   kOutGradWeight
//
// Activations are quantised along rows, one row a token or a pair as in experts.h; w is quantised as one matrix. A weight gradient sums over pairs, along which such scales differ. It groups an expert's pairs, in their order,
// by 128; the last group is shorter. Values of a group are decoded and quantised again along the pairs by the rules
// a_along_pairs and b_along_pairs, where a scale of a whole row is one of a group; codes with one scale a tensor are
// multiplied as they are instead. nvfp4 transforms a group's pairs first (quantize/hadamard.h), and rounds dy
// stochastically; the random bits of an element follow from the place of its pair's row of dy in the data.
//
// Sums are as in scaled_gemm.h. Their bits depend on the sizes only: neither on threads nor, except for weight
// gradients, on other tokens. Steps of the depth end where scales change, which for w depth first or along columns is
// at multiples of 128 of experts · outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "hardware/device_spec.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/scaled_operand.h"

namespace strata::cpu {

struct ScaledExpertsSpec {
  ExpertsSpec experts;  // dtype: of results but weight gradients, which are fp32
  quantize::ScaleRule a, b;
  bool b_along_columns = false;  // input gradients only: b is the copy along columns
  // Weight gradients: how groups of pairs are quantised: fp8 rows or blocks along them, MX or nvfp4 along rows. nullopt:
  // not again, for rules with one scale a tensor.
  std::optional<quantize::ScaleRule> a_along_pairs = {}, b_along_pairs = {};
  // Of both operands, along a group's pairs, before they are quantised again.
  std::optional<quantize::HadamardSigns> hadamard = {};
  // a is then rounded stochastically, by the places of its rows.
  std::optional<quantize::StochasticBits> stochastic = {};
};

// The place of a in the data, for stochastic rounding: as Source::places, runs and pitch of quantizer.h.
struct RowPlaces {
  const int32_t* places = nullptr;  // [rows of a, 2]
  std::span<const quantize::ColumnRun> runs = {};
  int64_t pitch = 0;
};

namespace detail {

// Memory of one operand of a weight gradient whose groups are quantised again: of each group codes, scales, and the
// scratch of its edge factors. Offsets are bytes from the start of scratch.
struct RegroupedPlan {
  int64_t codes_at = 0, codes_bytes = 0;  // bytes: of one group
  int64_t scales_at = 0, scales_bytes = 0;
  int64_t edges_at = 0, edges_bytes = 0;
  int64_t greatest_at = 0, greatest_bytes = 0;  // of nvfp4 by row: of each column
};

}  // namespace detail

// Data, a function of sizes and a DeviceSpec.
struct ScaledExpertsPlan {
  ScaledExpertsSpec spec;
  ExpertsPlan run;
  detail::CodedOperand a, b;
  int64_t a_scales_at = 0, b_scales_at = 0;  // bytes from the start of scratch
  detail::RegroupedPlan a_groups, b_groups;
  int64_t groups_at = 0;  // [experts + 1]: first group of each expert
  int64_t scratch_bytes = 0;
};

// Throws InternalError for an invalid specification.
ScaledExpertsPlan plan_scaled_experts(const ScaledExpertsSpec& spec, const hardware::DeviceSpec& device);

// As run_experts(). `scratch` is aligned to 64 bytes.
void run_scaled_experts(const ScaledExpertsPlan& plan, const ScaledMatrix& a, const int32_t* ids,
                        const int32_t* offsets, const ScaledMatrix& b, void* c, void* scratch,
                        const RowPlaces& places = {});

}  // namespace strata::cpu
