#include "kernels/reference/call.h"

#include "base/error.h"
#include "quantize/formats.h"

namespace strata::reference {

double Array::at(int64_t i) const {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(reinterpret_cast<const float*>(data)[i]);
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(reinterpret_cast<const BF16*>(data)[i]));
    case DType::kF16:
      return static_cast<double>(static_cast<float>(reinterpret_cast<const F16*>(data)[i]));
    case DType::kF64:
      return reinterpret_cast<const double*>(data)[i];
    case DType::kI64:
      return static_cast<double>(reinterpret_cast<const int64_t*>(data)[i]);
    case DType::kI32:
      return static_cast<double>(reinterpret_cast<const int32_t*>(data)[i]);
    default:
      if (const auto format = quantize::format_of(dtype))
        return static_cast<double>(quantize::element_at(*format, data, i));
      throw InternalError("no reference kernel reads elements of {}", name_of(dtype));
  }
}

int64_t Array::index_at(int64_t i) const {
  if (dtype == DType::kI64) return reinterpret_cast<const int64_t*>(data)[i];
  if (dtype == DType::kU8) return static_cast<uint8_t>(data[i]);
  STRATA_CHECK(dtype == DType::kI32, "indices are i32, i64 or u8, not {}", name_of(dtype));
  return reinterpret_cast<const int32_t*>(data)[i];
}

void Array::put(int64_t i, double value) const {
  switch (dtype) {
    case DType::kF32:
      reinterpret_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::kBF16:
      reinterpret_cast<BF16*>(data)[i] = BF16(static_cast<float>(value));
      return;
    case DType::kF16:
      reinterpret_cast<F16*>(data)[i] = F16(static_cast<float>(value));
      return;
    case DType::kF64:
      reinterpret_cast<double*>(data)[i] = value;
      return;
    case DType::kI64:
      reinterpret_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    case DType::kI32:
      reinterpret_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      return;
    case DType::kU8:
      data[i] = static_cast<std::byte>(value);
      return;
    default:
      if (const auto format = quantize::format_of(dtype))
        return quantize::put_element(*format, data, i, static_cast<float>(value));
      throw InternalError("no reference kernel writes elements of {}", name_of(dtype));
  }
}

void Array::give(int64_t i, double value) const {
  put(i, accumulate ? at(i) + value : value);
}

std::vector<double> Array::row(int64_t r) const {
  const int64_t width = shape[1];
  std::vector<double> values(static_cast<size_t>(width));
  for (int64_t c = 0; c < width; ++c) values[static_cast<size_t>(c)] = at(r * width + c);
  return values;
}

void copy_columns(const Array& to, int64_t first, const Array& from, int64_t from_first, int64_t n) {
  for (int64_t row = 0; row < to.shape[0]; ++row) {
    for (int64_t c = 0; c < n; ++c)
      to.put(row * to.shape[1] + first + c, from.at(row * from.shape[1] + from_first + c));
  }
}

}  // namespace strata::reference
