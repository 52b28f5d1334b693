// Conversions between double, float and the 16-bit formats.
#include "ptx/floating.h"

namespace strata::gpu_tests {

uint32_t narrow(double value, Format format, Rounding rounding) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint32_t>(bits >> 63);
  const uint32_t max_exponent = (1u << format.exponent) - 1;
  const uint32_t sign_bit = sign << (format.exponent + format.mantissa);
  const uint32_t infinity = max_exponent << format.mantissa;
  if (value != value) return (1u << (format.exponent + format.mantissa)) - 1;
  if (std::isinf(value)) return sign_bit | infinity;
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (exponent == 0) {  // zero, or a double's denormal: far below every smaller format
    const bool away = (bits << 1) != 0 && ((rounding == Rounding::kUp && sign == 0) ||
                                           (rounding == Rounding::kDown && sign == 1));
    return sign_bit | (away ? 1 : 0);
  }
  const uint64_t significand = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int bias = static_cast<int>(max_exponent / 2);
  int target = exponent - 1023 + bias;
  // Bits to drop: more if the result is denormal.
  int drop = 52 - static_cast<int>(format.mantissa);
  if (target < 1) drop += 1 - target;
  if (drop > 60) drop = 60;
  const uint64_t kept = significand >> drop;
  const uint64_t rest = significand & ((uint64_t{1} << drop) - 1);
  const uint64_t half = uint64_t{1} << (drop - 1);
  bool up = false;
  switch (rounding) {
    case Rounding::kNearest:
      up = rest > half || (rest == half && (kept & 1) != 0);
      break;
    case Rounding::kNearestAway:
      up = rest >= half;
      break;
    case Rounding::kZero:
      break;
    case Rounding::kDown:
      up = rest != 0 && sign == 1;
      break;
    case Rounding::kUp:
      up = rest != 0 && sign == 0;
      break;
  }
  // The hidden bit of a normal number adds one to the exponent field; so does a carry from rounding.
  uint64_t result = kept + (up ? 1 : 0);
  if (target >= 1) result += static_cast<uint64_t>(target - 1) << format.mantissa;
  if (result >= infinity) {
    const bool to_infinity = rounding == Rounding::kNearest || rounding == Rounding::kNearestAway ||
                             (rounding == Rounding::kUp && sign == 0) ||
                             (rounding == Rounding::kDown && sign == 1);
    result = to_infinity ? infinity : infinity - 1;
  }
  return sign_bit | static_cast<uint32_t>(result);
}

float half_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f80'0000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -value : value;
}

uint16_t to_half(float value) {
  return static_cast<uint16_t>(narrow(value, kHalf, Rounding::kNearest));
}

}  // namespace strata::gpu_tests
