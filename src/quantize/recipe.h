// Recipes: which operand of a linear layer's three matmuls takes which format and scales, as their publishers define
// them.
//
//   matmul            sums over   operands
//   y = x · wᵀ        inputs      x along rows, w along rows
//   dx = dy · w       outputs     dy along rows, w along columns
//   dw = dyᵀ · x      tokens      dy along columns, x along columns
//
//   recipe          source
//   tensor          torchao 0.18, Float8LinearConfig: tensorwise; Micikevicius et al. 2022
//   delayed         Transformer Engine 2, DelayedScaling: HYBRID, "max" of 1,024 steps, margin 0; Micikevicius et al. 2022
//   row             torchao 0.18, ROWWISE
//   row_hp_wgrad    torchao 0.18, ROWWISE_WITH_GW_HP
//   block           DeepSeek-V3 (arXiv 2412.19437), section 3.3
//   mxfp8           Mishra et al. 2025 (arXiv 2506.08027)
//   nvfp4           NVIDIA 2025, "Pretraining Large Language Models with NVFP4" (arXiv 2509.25149), section 4
//
// A bf16 matmul has none: what a recipe leaves out, and all that `precision.keep` names, stays in bf16.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "quantize/scale_rule.h"

namespace strata::quantize {

// One operand, as the two matmuls that read it take it.
struct QuantizedOperand {
  ScaleRule along_rows;
  // nullopt: the codes along rows are read in the other direction, which scales of whole tensors and of squares allow.
  std::optional<ScaleRule> along_columns = {};
};

struct Recipe {
  std::string_view name;
  QuantizedOperand input, weight, gradient;
  bool quantizes_weight_gradient = true;  // dw = dyᵀ · x; else it is computed from bf16
  bool rounds_gradients_stochastically = false;
  bool transforms_weight_gradient = false;  // both operands of dw pass a Hadamard transform (hadamard.h)

  // Scales follow from earlier steps, so a run has histories (delayed.h).
  bool is_delayed() const { return weight.along_rows.is_delayed(); }
};

// All of fp8 and fp4, the default of each first.
std::span<const Recipe> recipes();
// nullptr: there is none of this name.
const Recipe* find_recipe(std::string_view name);

}  // namespace strata::quantize
