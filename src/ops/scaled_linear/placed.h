// Placements of quantised operands.
#pragma once

#include "ops/rules.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::ops {

// Placements of an operand's codes and scales.
struct PlacedCodes {
  Placement codes = kR, scales = kR;
};
inline PlacedCodes cut_codes(const ScaledOperandAttrs& attrs, int stored_dim) {
  return {Placement::sharded(stored_dim), placement_of_scales(attrs.rule, stored_dim)};
}

}  // namespace strata::ops
