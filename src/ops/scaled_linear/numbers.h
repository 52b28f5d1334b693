// The numbers that quantised operands stand for, for reference kernels.
#pragma once

#include <vector>

#include "kernels/reference/call.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::reference {

// The numbers that an operand's codes stand for, as a matrix [count, depth].
class NumbersOf {
 public:
  NumbersOf(const ops::ScaledOperandAttrs& attrs, const Array& codes, const Array& scales,
            const Array& greatest = {})
      : attrs_(attrs), codes_(codes), scales_(scales) {
    if (attrs.rule.scale_type() != quantize::ScaleType::kE4M3) return;
    for (int64_t i = 0; i < greatest.shape.elements(); ++i)
      of_rows_.push_back(
          static_cast<double>(quantize::nvfp4_tensor_scale(static_cast<float>(greatest.at(i)))));
  }
  int64_t count() const { return codes_.shape[attrs_.across ? 1 : 0]; }
  int64_t depth() const { return codes_.shape[attrs_.across ? 0 : 1]; }
  double at(int64_t i, int64_t k) const {
    const int64_t row = attrs_.across ? k : i, column = attrs_.across ? i : k;
    const auto block = [](int64_t at, int64_t extent) {
      return extent == quantize::kWhole ? 0 : at / extent;
    };
    const int64_t scale =
        block(row, attrs_.rule.block().rows) * scales_.shape[1] + block(column, attrs_.rule.block().columns);
    const double of_row =
        of_rows_.empty() ? 1 : of_rows_[attrs_.rule.is_nvfp4_by_row() ? static_cast<size_t>(row) : 0];
    return codes_.at(row * codes_.shape[1] + column) * scales_.at(scale) * of_row;
  }

 private:
  const ops::ScaledOperandAttrs& attrs_;
  const Array &codes_, &scales_;
  std::vector<double> of_rows_;  // nvfp4: of each row, or of the tensor
};

}  // namespace strata::reference
