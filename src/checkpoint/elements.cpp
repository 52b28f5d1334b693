#include "checkpoint/elements.h"

#include <cmath>
#include <cstddef>

namespace strata::checkpoint {

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

void convert_elements(void* out, DType out_type, const void* in, DType in_type, int64_t n) {
  if (in_type == DType::kF32 && out_type == DType::kBF16) {
    const auto* from = static_cast<const float*>(in);
    auto* to = static_cast<BF16*>(out);
    for (int64_t i = 0; i < n; ++i) to[i] = BF16(from[i]);
  } else if (in_type == DType::kBF16 && out_type == DType::kF32) {
    const auto* from = static_cast<const uint16_t*>(in);
    auto* to = static_cast<uint32_t*>(out);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint32_t>(from[i]) << 16;
  } else {
    convert(out, out_type, in, in_type, n);
  }
}

void convert_rows(void* out, DType out_type, int64_t out_pitch, const void* in, DType in_type,
                  int64_t in_pitch, int64_t rows, int64_t columns) {
  if (rows == 1 || (out_pitch == columns && in_pitch == columns))
    return convert_elements(out, out_type, in, in_type, rows * columns);
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  for (int64_t row = 0; row < rows; ++row)
    convert_elements(to + row * out_pitch * size_of(out_type), out_type,
                     from + row * in_pitch * size_of(in_type), in_type, columns);
}

int64_t first_not_finite(const void* data, DType dtype, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    bool bad = false;
    switch (dtype) {
      case DType::kF32:
        bad = (static_cast<const uint32_t*>(data)[i] & 0x7f800000u) == 0x7f800000u;
        break;
      case DType::kBF16:
        bad = (static_cast<const uint16_t*>(data)[i] & 0x7f80u) == 0x7f80u;
        break;
      case DType::kF16:
        bad = (static_cast<const uint16_t*>(data)[i] & 0x7c00u) == 0x7c00u;
        break;
      case DType::kF64:
        bad = !std::isfinite(static_cast<const double*>(data)[i]);
        break;
      default:
        return -1;
    }
    if (bad) return i;
  }
  return -1;
}

}  // namespace strata::checkpoint
