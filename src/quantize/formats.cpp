#include "quantize/formats.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "quantize/tiles.h"

namespace strata::quantize {
namespace {

constexpr double power_of_two(int exponent) {
  double power = 1;
  for (; exponent > 0; --exponent) power *= 2;
  for (; exponent < 0; ++exponent) power /= 2;
  return power;
}

constexpr float value_of(const FormatSpec& spec, uint32_t code) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  code &= spec.codes() - 1;
  if (spec.sign == Sign::kNoNegativeZero && code == spec.sign_bit()) return kNan;
  const uint32_t magnitude = code & ~spec.sign_bit();
  const auto exponent = static_cast<int>(magnitude >> spec.mantissa_bits);
  const uint32_t hidden = 1u << spec.mantissa_bits, mantissa = magnitude & (hidden - 1);
  double size = 0;
  if (magnitude > spec.greatest) {
    size = spec.infinity && magnitude == spec.greatest + 1 ? std::numeric_limits<double>::infinity()
                                                           : double{kNan};
  } else if (exponent == 0 && spec.sign != Sign::kNone) {
    size = mantissa * power_of_two(1 - spec.bias - spec.mantissa_bits);
  } else {
    size = (hidden + mantissa) * power_of_two(exponent - spec.bias - spec.mantissa_bits);
  }
  return static_cast<float>((code & spec.sign_bit()) != 0 ? -size : size);
}

// Made by the compiler: at run time a thread that flushes denormals would lose 2^-127.
constexpr std::array<std::array<float, 256>, kFormats - 1> kValues = [] {
  std::array<std::array<float, 256>, kFormats - 1> values{};
  for (uint32_t f = 0; f < kFormats - 1; ++f) {
    for (uint32_t code = 0; code < 256; ++code)
      values[f][code] = value_of(spec_of(static_cast<Format>(f)), code);
  }
  return values;
}();

// A finite magnitude as quanta of the format at that magnitude: quanta + rest / 2^shift of them.
struct Split {
  uint64_t quanta;
  uint64_t rest;
  int shift;
  uint32_t
      base;  // code of `quanta` quanta is base + quanta, also where rounding carries into the next exponent
};
Split split(const FormatSpec& spec, uint32_t magnitude) {
  const auto biased = static_cast<int>(magnitude >> 23);
  uint64_t significand = magnitude & 0x7fffffu;
  int exponent = biased - 127;  // of the leading bit
  if (biased == 0) {
    exponent = -126;
  } else {
    significand |= 0x800000u;
  }
  const int least = 1 - spec.bias;
  const int of_quanta = std::max(exponent, least);
  // The significand counts 2^(exponent - 23), a quantum is 2^(of_quanta - mantissa_bits).
  const int shift = std::min(of_quanta - exponent + 23 - spec.mantissa_bits, 63);
  return {significand >> shift, significand & ((uint64_t{1} << shift) - 1), shift,
          static_cast<uint32_t>(of_quanta - least) << spec.mantissa_bits};
}

// Powers of two: nearest, ties to the larger.
uint32_t encode_power(uint32_t word) {
  if (word == 0 || word == 0x80000000u) return 0;
  if (word >= 0x7f800001u) return 255;                         // negative, or NaN
  if (word < 0x00800000u) return word >= 0x00600000u ? 1 : 0;  // 2^-127 is 0x00400000
  return std::min((word + 0x400000u) >> 23, 254u);
}

uint32_t finish(const FormatSpec& spec, uint32_t word, uint64_t code) {
  const uint32_t most = spec.saturates() ? spec.greatest : spec.greatest + 1;
  const auto magnitude = static_cast<uint32_t>(std::min<uint64_t>(code, most));
  if (magnitude == 0 && spec.sign == Sign::kNoNegativeZero) return 0;
  return (word >> 31 != 0 ? spec.sign_bit() : 0) | magnitude;
}

}  // namespace

float decode(Format format, uint32_t code) {
  if (format == Format::kF16) return f16_to_float(static_cast<uint16_t>(code));
  return kValues[static_cast<size_t>(format)][code & 0xff];
}

const std::array<float, 256>& values_of(Format format) {
  STRATA_CHECK(format != Format::kF16, "f16 has more than 256 values");
  return kValues[static_cast<size_t>(format)];
}

float largest_of(Format format) {
  return decode(format, spec_of(format).greatest);
}

uint32_t encode(Format format, float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const FormatSpec spec = spec_of(format);
  if (spec.sign == Sign::kNone) return encode_power(word);
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return spec.nan();
  const Split s = split(spec, magnitude);
  const uint64_t half = uint64_t{1} << (s.shift - 1);
  const bool up = s.rest > half || (s.rest == half && (s.quanta & 1) != 0);
  return finish(spec, word, s.base + s.quanta + (up ? 1 : 0));
}

uint32_t encode(Format format, float value, uint32_t random) {
  const FormatSpec spec = spec_of(format);
  STRATA_CHECK(spec.sign != Sign::kNone, "{} has no stochastic rounding", spec.name);
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return spec.nan();
  const Split s = split(spec, magnitude);
  // rest / 2^shift + random / 2^24 >= 1, with rest cut to 24 bits.
  const uint64_t rest = s.shift <= 24 ? s.rest << (24 - s.shift) : s.rest >> (s.shift - 24);
  const bool up = rest + (random >> 8) >= uint64_t{1} << 24;
  return finish(spec, word, s.base + s.quanta + (up ? 1 : 0));
}

uint32_t random_word(const StochasticBits& bits, int64_t element) {
  const auto at = static_cast<uint64_t>(element);
  return philox_words(bits.key.seed, bits.key.stream, at / 4, bits.step).at[at % 4];
}

void encode(Format format, const float* in, int64_t n, void* codes) {
  if (format == Format::kF16) return convert(codes, DType::kF16, in, DType::kF32, n);
  auto* const out = static_cast<uint8_t*>(codes);
  if (format == Format::kE8M0) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(encode(format, in[i]));
    return;
  }
  tiles::encode_run(format, in, n, out, nullptr, 0);
}

void encode(Format format, const float* in, int64_t n, void* codes, const StochasticBits& stochastic,
            int64_t first) {
  const FormatSpec spec = spec_of(format);
  STRATA_CHECK(spec.sign != Sign::kNone && spec.bits() <= 8, "{} has no stochastic rounding in vectors",
               spec.name);
  tiles::encode_run(format, in, n, static_cast<uint8_t*>(codes), &stochastic, first);
}

void decode(Format format, const void* codes, int64_t n, float* out) {
  if (format == Format::kF16) return convert(out, DType::kF32, codes, DType::kF16, n);
  if (format != Format::kE8M0) return decode(format, codes, n, BlockFactors(), out);
  const auto* const in = static_cast<const uint8_t*>(codes);
  const std::array<float, 256>& values = values_of(format);
  for (int64_t i = 0; i < n; ++i) out[i] = values[in[i]];
}

DType dtype_of(Format format) {
  switch (format) {
    case Format::kE4M3:
      return DType::kE4M3;
    case Format::kE5M2:
      return DType::kE5M2;
    case Format::kE2M1:
      return DType::kE2M1;
    case Format::kE8M0:
      return DType::kE8M0;
    case Format::kF16:
      return DType::kF16;
    default:
      throw InternalError("a program has no values of {}", spec_of(format).name);
  }
}

std::optional<Format> format_of(DType dtype) {
  switch (dtype) {
    case DType::kE4M3:
      return Format::kE4M3;
    case DType::kE5M2:
      return Format::kE5M2;
    case DType::kE2M1:
      return Format::kE2M1;
    case DType::kE8M0:
      return Format::kE8M0;
    case DType::kF16:
      return Format::kF16;
    default:
      return std::nullopt;
  }
}

namespace {

constexpr bool is_upper_half(int64_t i) {
  return i % 2 != 0;
}

}  // namespace

float element_at(Format format, const void* codes, int64_t i) {
  if (format == Format::kF16) return f16_to_float(static_cast<const uint16_t*>(codes)[i]);
  const auto* bytes = static_cast<const uint8_t*>(codes);
  if (format != Format::kE2M1) return decode(format, bytes[i]);
  return decode(format, is_upper_half(i) ? bytes[i / 2] >> 4 : bytes[i / 2] & 0xf);
}

void put_element(Format format, void* codes, int64_t i, float value) {
  const uint32_t code = encode(format, value);
  if (format == Format::kF16) {
    static_cast<uint16_t*>(codes)[i] = static_cast<uint16_t>(code);
    return;
  }
  auto* bytes = static_cast<uint8_t*>(codes);
  if (format != Format::kE2M1) {
    bytes[i] = static_cast<uint8_t>(code);
    return;
  }
  uint8_t& pair = bytes[i / 2];
  pair = static_cast<uint8_t>(is_upper_half(i) ? (pair & 0xfu) | code << 4 : (pair & 0xf0u) | code);
}

namespace {

template <typename T>
void decode_signed(Format format, const void* codes, int64_t n, const BlockFactors& blocks, T* out) {
  const FormatSpec spec = spec_of(format);
  STRATA_CHECK(spec.sign != Sign::kNone && spec.bits() <= 8, "{} is not decoded in vectors", spec.name);
  tiles::decode_run(format, static_cast<const uint8_t*>(codes), n, blocks, out);
}

}  // namespace

void decode(Format format, const void* codes, int64_t n, const BlockFactors& blocks, float* out) {
  decode_signed(format, codes, n, blocks, out);
}
void decode(Format format, const void* codes, int64_t n, const BlockFactors& blocks, BF16* out) {
  decode_signed(format, codes, n, blocks, out);
}

}  // namespace strata::quantize
