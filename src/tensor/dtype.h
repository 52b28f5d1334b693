// Element types, and the 16-bit floats as storage types.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU16,
  kU8,
  kBool,
  // Codes, whose scales are separate values (src/quantize).
  kE4M3,
  kE5M2,
  kE8M0,
  kE2M1,  // two a byte, the first in the lower half
};

constexpr bool is_code(DType dtype) {
  return dtype >= DType::kE4M3;
}

// Bytes of n elements that begin at a byte.
constexpr int64_t bytes_of(DType dtype, int64_t n);

// Bytes of one element. Not of kE2M1, which has none: use bytes_of().
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
      return 1;
    case DType::kE2M1:
      break;
  }
  __builtin_trap();
}

constexpr int64_t bytes_of(DType dtype, int64_t n) {
  return dtype == DType::kE2M1 ? (n + 1) / 2 : n * size_of(dtype);
}

std::string_view name_of(DType dtype);              // "f32", "bf16", …
std::string_view safetensors_name_of(DType dtype);  // "F32", "BF16", …
std::optional<DType> dtype_from_safetensors(std::string_view name);

// bfloat16 storage: the upper half of a float, rounded to nearest even; NaN stays NaN.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (word >> 16) | 0x40u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);  // nearest even; larger values become infinite

// IEEE 754's binary16 storage.
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float value) : bits(float_to_f16(value)) {}
  explicit operator float() const { return f16_to_float(bits); }
};

// out[i] = in[i], converted between f32, bf16, f16 and f64; other pairs only when they are the same type. f32
// and bf16 become each other on bits: fast, and the same whether or not the calling thread flushes denormals.
void convert(void* out, DType out_type, const void* in, DType in_type, int64_t n);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};

}  // namespace strata
