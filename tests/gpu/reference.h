// Small floats for tests, by search in a table of all their values: independent of the executor's method.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

namespace strata::gpu_tests {

struct SmallFormat {
  int exponent;
  int mantissa;
};
inline constexpr SmallFormat kF16Format{5, 10};
inline constexpr SmallFormat kBf16Format{8, 7};

inline double small_value(uint32_t bits, SmallFormat format) {
  const int exponent = static_cast<int>(bits >> format.mantissa & ((1u << format.exponent) - 1));
  const int bias = (1 << (format.exponent - 1)) - 1;
  const double fraction = static_cast<double>(bits & ((1u << format.mantissa) - 1));
  double value;
  if (exponent == (1 << format.exponent) - 1) {
    value =
        fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - format.mantissa);
  } else {
    value = std::ldexp(fraction + std::ldexp(1.0, format.mantissa), exponent - bias - format.mantissa);
  }
  return (bits >> (format.exponent + format.mantissa) & 1) != 0 ? -value : value;
}

// rounding: 'n' nearest even, 'z' to zero.
inline uint32_t small_bits(double value, SmallFormat format, char rounding) {
  const uint32_t sign = std::signbit(value) ? 1u << (format.exponent + format.mantissa) : 0;
  const double magnitude = std::fabs(value);
  const uint32_t infinity = ((1u << format.exponent) - 1) << format.mantissa;
  if (std::isnan(value)) return (1u << (format.exponent + format.mantissa)) - 1;
  if (std::isinf(value)) return sign | infinity;
  uint32_t below = 0, above = infinity;  // the largest value not above the magnitude
  while (above - below > 1) {
    const uint32_t middle = (below + above) / 2;
    (small_value(middle, format) <= magnitude ? below : above) = middle;
  }
  if (rounding == 'z') return sign | below;
  const double down = small_value(below, format);
  // Beyond the largest value the next one would be a power of two.
  const double up =
      above == infinity ? std::ldexp(1.0, 1 << (format.exponent - 1)) : small_value(above, format);
  const double to_down = magnitude - down, to_up = up - magnitude;
  return sign | (to_up < to_down || (to_up == to_down && (below & 1) != 0) ? above : below);
}

}  // namespace strata::gpu_tests
