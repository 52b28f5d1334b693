#include "tensor/dtype.h"

#include <array>

namespace strata {
namespace {
struct Names {
  DType dtype;
  std::string_view name, safetensors;
};
constexpr std::array<Names, 15> kNames{{{DType::kF32, "f32", "F32"},
                                        {DType::kBF16, "bf16", "BF16"},
                                        {DType::kF16, "f16", "F16"},
                                        {DType::kF64, "f64", "F64"},
                                        {DType::kI64, "i64", "I64"},
                                        {DType::kI32, "i32", "I32"},
                                        {DType::kI16, "i16", "I16"},
                                        {DType::kI8, "i8", "I8"},
                                        {DType::kU16, "u16", "U16"},
                                        {DType::kU8, "u8", "U8"},
                                        {DType::kBool, "bool", "BOOL"},
                                        {DType::kE4M3, "e4m3", "F8_E4M3"},
                                        {DType::kE5M2, "e5m2", "F8_E5M2"},
                                        {DType::kE8M0, "e8m0", "F8_E8M0"},
                                        {DType::kE2M1, "e2m1", "F4"}}};
}  // namespace

std::string_view name_of(DType dtype) {
  return kNames[static_cast<size_t>(dtype)].name;
}
std::string_view safetensors_name_of(DType dtype) {
  return kNames[static_cast<size_t>(dtype)].safetensors;
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const auto& row : kNames) {
    if (row.safetensors == name) return row.dtype;
  }
  return std::nullopt;
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t float_to_f16(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(word >> 16 & 0x8000u);
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 aligns and rounds the mantissa
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

}  // namespace strata
