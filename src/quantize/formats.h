// Floating-point formats of at most 8 bits, and fp16 for comparison: one description each, from which both
// conversions follow.
//
// Sources: e4m3, e5m2: OCP 8-bit Floating Point Specification 1.0. e2m1, e2m3, e3m2, e8m0: OCP Microscaling Formats
// Specification 1.0. e4m3fnuz, e5m2fnuz: Noune et al. 2022, "8-bit Numerical Formats for Deep Neural Networks"
// (no infinity, no negative zero, NaN in its place; bias greater by one). f16: IEEE 754 binary16.
//
// encode() rounds to nearest, ties to even, or stochastically. It saturates: a magnitude above the largest finite one,
// infinity included, becomes the largest (the quantizer clamps before it converts). PyTorch up to 2.11 and ml_dtypes
// give NaN or infinity there. Only f16, which is stored without a scale, overflows to infinity. NaN becomes the
// format's NaN without a sign, so that codes do not depend on how a processor signs its own NaN; formats without NaN
// get 0, and the scale of the block carries the NaN.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/random.h"
#include "tensor/dtype.h"

namespace strata::quantize {

enum class Format : uint8_t { kE4M3, kE5M2, kE2M1, kE8M0, kE4M3Fnuz, kE5M2Fnuz, kE2M3, kE3M2, kF16 };
inline constexpr int kFormats = 9;

enum class Sign : uint8_t {
  kSymmetric,       // the top bit of a code is the sign
  kNoNegativeZero,  // likewise, but that bit without any other is NaN
  kNone,            // no sign and no zero: code E is 2^(E - bias)
};

struct FormatSpec {
  std::string_view name;
  int exponent_bits, mantissa_bits, bias;
  Sign sign;
  uint32_t greatest;  // code of the largest finite value
  bool infinity;  // the code above `greatest` is infinity; further ones are NaN, as all are without infinity
  bool has_nan;

  constexpr int bits() const { return exponent_bits + mantissa_bits + (sign == Sign::kNone ? 0 : 1); }
  constexpr uint32_t sign_bit() const { return sign == Sign::kNone ? 0 : 1u << (bits() - 1); }
  constexpr uint32_t codes() const { return 1u << bits(); }
  constexpr bool saturates() const { return bits() <= 8; }
  // The code of NaN; 0 for formats without.
  constexpr uint32_t nan() const {
    if (!has_nan) return 0;
    if (sign == Sign::kNoNegativeZero) return sign_bit();
    if (infinity) return greatest + 1 + (1u << (mantissa_bits - 1));  // the quiet one
    return greatest + 1;
  }
};

constexpr FormatSpec spec_of(Format format) {
  switch (format) {
    case Format::kE4M3:
      return {"e4m3", 4, 3, 7, Sign::kSymmetric, 0x7e, false, true};
    case Format::kE5M2:
      return {"e5m2", 5, 2, 15, Sign::kSymmetric, 0x7b, true, true};
    case Format::kE2M1:
      return {"e2m1", 2, 1, 1, Sign::kSymmetric, 0x7, false, false};
    case Format::kE8M0:
      return {"e8m0", 8, 0, 127, Sign::kNone, 0xfe, false, true};
    case Format::kE4M3Fnuz:
      return {"e4m3fnuz", 4, 3, 8, Sign::kNoNegativeZero, 0x7f, false, true};
    case Format::kE5M2Fnuz:
      return {"e5m2fnuz", 5, 2, 16, Sign::kNoNegativeZero, 0x7f, false, true};
    case Format::kE2M3:
      return {"e2m3", 2, 3, 1, Sign::kSymmetric, 0x1f, false, false};
    case Format::kE3M2:
      return {"e3m2", 3, 2, 3, Sign::kSymmetric, 0x1f, false, false};
    case Format::kF16:
      return {"f16", 5, 10, 15, Sign::kSymmetric, 0x7bff, true, true};
  }
  return {};
}

// The type of a format's codes in memory and in programs. InternalError for those that no program has (fnuz, 6 bits).
DType dtype_of(Format format);
// Of a type of codes, and kF16; nullopt for others.
std::optional<Format> format_of(DType dtype);

// The value of a code; bits above the format's width are ignored.
float decode(Format format, uint32_t code);

// All values of a format of at most 8 bits, by code; shorter formats repeat. Constant data.
const std::array<float, 256>& values_of(Format format);

// The largest finite value.
float largest_of(Format format);

// The code nearest to `value`; ties go to the even code, for e8m0 (whose codes all have the same significand) to the
// larger power, as in ml_dtypes. e8m0 has no zero and no negative values: zero gets its least power, a negative number
// NaN. Scalar and by definition; the vector code must agree with it.
uint32_t encode(Format format, float value);

// floor(|value| / quantum + uniform_float(random)) quanta, where the quantum is the distance of the codes around
// |value| and 24 random bits count: rounds up with the probability of the discarded part, to within 2^-24. Not for e8m0.
uint32_t encode(Format format, float value, uint32_t random);

// The random bits of an element of a tensor, a function of its position in the whole tensor: any split over threads,
// ranks and micro-batches makes the same codes. Philox (base/philox.h) with counter element / 4 and counter_high step.
struct StochasticBits {
  RandomKey key;
  uint32_t step = 0;
};
uint32_t random_word(const StochasticBits& bits, int64_t element);

// Columns of a part of a matrix from `begin` on, up to the next run, are those of the whole from `number` on.
struct ColumnRun {
  int64_t begin = 0, number = 0;
};

// Bytes of n codes in memory: e2m1 two a byte, the first in the lower half; f16 two bytes; all others one byte.
constexpr int64_t code_bytes(Format format, int64_t n) {
  return format == Format::kE2M1 ? (n + 1) / 2 : format == Format::kF16 ? 2 * n : n;
}

// One element of codes in memory, as a number.
float element_at(Format format, const void* codes, int64_t i);
// Stores the code nearest to `value`; the other half of a byte stays.
void put_element(Format format, void* codes, int64_t i, float value);

// codes[i] = encode(in[i]), in vectors; the unused half of a last byte is 0. With `stochastic` (formats of 8 bits or
// fewer with a sign), in[i] is element first + i. Both are the same whether or not the thread flushes denormals.
void encode(Format format, const float* in, int64_t n, void* codes);
void encode(Format format, const float* in, int64_t n, void* codes, const StochasticBits& stochastic,
            int64_t first);

// out[i] = decode(codes[i]).
void decode(Format format, const void* codes, int64_t n, float* out);
// Factors of consecutive blocks of `width` codes. nullptr: 1 for all.
struct BlockFactors {
  const float* factors = nullptr;
  int64_t width = 1;
  int64_t first = 0;  // codes of the first block that precede those at hand
};
// out[i] = decode(codes[i]) · factor in fp32, of a format of at most 8 bits with a sign. A bf16 result is exact if it
// has at most 8 significant bits, else cut.
void decode(Format format, const void* codes, int64_t n, const BlockFactors& blocks, float* out);
void decode(Format format, const void* codes, int64_t n, const BlockFactors& blocks, BF16* out);

}  // namespace strata::quantize
