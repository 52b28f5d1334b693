#include "checkpoint/elements.h"

#include <cstddef>
#include <cstdint>

namespace strata::checkpoint {

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

void convert_rows(void* out, DType out_type, int64_t out_pitch, const void* in, DType in_type,
                  int64_t in_pitch, int64_t rows, int64_t columns) {
  if (rows == 1 || (out_pitch == columns && in_pitch == columns))
    return convert(out, out_type, in, in_type, rows * columns);
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  for (int64_t row = 0; row < rows; ++row)
    convert(to + row * out_pitch * size_of(out_type), out_type, from + row * in_pitch * size_of(in_type),
            in_type, columns);
}

namespace {

// Index of the first element whose exponent is all ones, or -1. Tests whole blocks, to run at memory speed.
template <typename Bits>
int64_t first_with(const void* data, Bits exponent, int64_t n) {
  constexpr int64_t kBlock = 64;
  const auto* bits = static_cast<const Bits*>(data);
  int64_t at = 0;
  for (; at + kBlock <= n; at += kBlock) {
    Bits found = 0;
    for (int64_t i = 0; i < kBlock; ++i)
      found |= static_cast<Bits>((bits[at + i] & exponent) == exponent ? 1 : 0);
    if (found != 0) break;
  }
  for (; at < n; ++at) {
    if ((bits[at] & exponent) == exponent) return at;
  }
  return -1;
}

}  // namespace

int64_t first_not_finite(const void* data, DType dtype, int64_t n) {
  switch (dtype) {
    case DType::kF64:
      return first_with<uint64_t>(data, 0x7ff0000000000000u, n);
    case DType::kF32:
      return first_with<uint32_t>(data, 0x7f800000u, n);
    case DType::kBF16:
      return first_with<uint16_t>(data, 0x7f80u, n);
    case DType::kF16:
      return first_with<uint16_t>(data, 0x7c00u, n);
    default:
      return -1;
  }
}

}  // namespace strata::checkpoint
