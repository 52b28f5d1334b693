// Quantised operands of cases.
#pragma once

#include <cmath>

#include "ops/cases.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::device::op_rows {

// Codes of a rule, spread over its format, with scales near 1.
struct ScaledOperand {
  Operand codes, scales;
  OptionalOperand greatest;
};
inline ScaledOperand scaled(const ops::ScaledOperandAttrs& attrs, int64_t count, int64_t depth) {
  const quantize::ScaleRule& rule = attrs.rule;
  const Shape shape = attrs.across ? Shape{depth, count} : Shape{count, depth};
  const auto layout = quantize::layout_of(rule, shape[0], shape[1]);
  ScaledOperand made{{.dtype = quantize::dtype_of(rule.format()), .shape = shape},
                     {.dtype = quantize::dtype_of(rule.scale_type()),
                      .shape = {layout.scale_rows, layout.scale_columns},
                      .content = [](int64_t i) { return std::ldexp(1.0, static_cast<int>(i % 4) - 2); }},
                     {}};
  if (rule.scale_type() == quantize::ScaleType::kF32)
    made.scales.content = [](int64_t i) { return 0.5 + 0.1 * static_cast<double>(i % 7); };
  // nvfp4: of a tensor whose scale is 0.75.
  if (rule.scale_type() == quantize::ScaleType::kE4M3)
    made.greatest = f32_of({1, 1}, [](int64_t) { return 0.75 * 448 * 6; });
  // Of rows with scales of few bits, so that decoded values are exact.
  if (rule.is_nvfp4_by_row())
    made.greatest =
        f32_of({1, shape[0]}, [](int64_t i) { return (0.5 + 0.25 * static_cast<double>(i % 3)) * 448 * 6; });
  return made;
}

}  // namespace strata::device::op_rows
