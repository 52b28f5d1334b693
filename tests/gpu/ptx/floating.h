// Floating-point formats and the float forms of add, sub, mul, mad, div, min, max, neg and abs.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>

#include "ptx/decoder.h"

namespace strata::gpu_tests {

inline constexpr uint32_t kNan32 = 0x7fff'ffff;
inline constexpr uint16_t kNan16 = 0x7fff;

// A binary format: bits of exponent and of stored mantissa.
struct Format {
  unsigned exponent;
  unsigned mantissa;
};
inline constexpr Format kHalf{5, 10};
inline constexpr Format kBrain{8, 7};
inline constexpr Format kTensor32{8, 10};

// Rounds to a smaller format, once and exactly; NaN becomes canonical. The result is right-aligned.
uint32_t narrow(double value, Format format, Rounding rounding);

float half_value(uint16_t bits);
inline float brain_value(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
uint16_t to_half(float value);
inline uint16_t to_brain(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fff'ffff) > 0x7f80'0000 ? kNan16 : rounded);
}

// NaN results are canonical.
inline float canonical(float value) {
  return value != value ? std::bit_cast<float>(kNan32) : value;
}
// Makes a NaN quiet and preserves its other bits.
inline double quieted(double nan) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(nan) | uint64_t{1} << 51);
}
inline float flushed(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x7f80'0000) == 0 ? std::bit_cast<float>(bits & 0x8000'0000) : value;
}
inline float saturated(float value) {
  return value != value ? 0.0f : value <= 0 ? 0.0f : value > 1 ? 1.0f : value;
}
// a + b rounded to odd: rounding it again to a format at least two bits smaller yields the correctly rounded
// sum.
inline double odd_sum(double a, double b) {
  const double sum = a + b;
  const double part = sum - a;
  const double error = (a - (sum - part)) + (b - part);
  if (error == 0 || !std::isfinite(sum)) return sum;
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  if ((bits & 1) != 0) return sum;
  // Away from zero if the error has the sum's sign.
  return std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// Sets the processor's rounding mode as long as the object lives.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding) : before_(std::fegetround()) {
    std::fesetround(rounding == Rounding::kZero   ? FE_TOWARDZERO
                    : rounding == Rounding::kDown ? FE_DOWNWARD
                    : rounding == Rounding::kUp   ? FE_UPWARD
                                                  : FE_TONEAREST);
  }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int before_;
};

// Each decodes the statement and returns true if its type is a float.
bool decode_float_add_sub(Decoder& d, bool subtract);
bool decode_float_mul(Decoder& d);
bool decode_float_mad(Decoder& d);
bool decode_float_div(Decoder& d);
bool decode_float_min_max(Decoder& d, bool maximum);
bool decode_float_sign(Decoder& d, bool absolute);

}  // namespace strata::gpu_tests
