// The median of numbers.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

namespace strata {

// Of an even number of values the mean of the middle two; NaN of none.
inline double median_of(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  // Halves first: the sum of two large values may be infinite.
  return *middle / 2 + *std::max_element(values.begin(), middle) / 2;
}

}  // namespace strata
