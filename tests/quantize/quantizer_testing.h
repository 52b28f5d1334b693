// Matrices and results of quantizers for tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "quantize/quantizer.h"

namespace strata::quantize {

// Codes, scales and greatest magnitudes with separate memory.
struct Result {
  QuantizedLayout layout;
  std::vector<uint8_t> codes = {}, scales = {};
  std::vector<float> greatest = {};
  bool operator==(const Result& other) const { return codes == other.codes && scales == other.scales; }
};

inline QuantizedLayout layout_of(const ScaleRule& rule, const Source& source, Along along) {
  return along == Along::kRows ? layout_of(rule, source.rows, source.columns)
                               : layout_of(rule, source.columns, source.rows);
}

// A result of the right size, filled with bytes that no test expects.
inline Result empty_result(const Source& source, const Treatment& treatment, Along along) {
  Result result{.layout = layout_of(treatment.rule, source, along)};
  result.codes.assign(static_cast<size_t>(result.layout.code_bytes()), 0xee);
  result.scales.assign(static_cast<size_t>(result.layout.scale_bytes()), 0xee);
  result.greatest.assign(static_cast<size_t>(result.layout.greatest), -1.0f);
  return result;
}
inline Request request_of(const Treatment& treatment, Result& result) {
  return {treatment, {result.codes.data(), result.scales.data()}, result.greatest.data()};
}

inline Result quantized(const Source& source, const Treatment& treatment, Along along) {
  Result result = empty_result(source, treatment, along);
  find_greatest(source, treatment, along, result.greatest.data());
  if (along == Along::kRows) {
    quantize(source, request_of(treatment, result), std::nullopt);
  } else {
    quantize(source, std::nullopt, request_of(treatment, result));
  }
  return result;
}

inline std::vector<float> dequantized(const ScaleRule& rule, const Result& result) {
  const auto& layout = result.layout;
  std::vector<float> values(static_cast<size_t>(layout.rows * layout.columns));
  dequantize(rule, layout.rows, layout.columns, result.codes.data(), result.scales.data(),
             result.greatest.data(), values.data(), layout.columns);
  return values;
}

inline Source source_of(const std::vector<float>& values, int64_t rows, int64_t columns) {
  return {.data = values.data(), .rows = rows, .columns = columns, .stride = columns};
}

// As tools/golden/precision_quantizers.py makes it: values of many sizes, and with `special` NaN and infinities.
inline std::vector<float> golden_matrix(RandomKey key, int64_t rows, int64_t columns, bool special) {
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t row = i / columns, column = i % columns;
    const uint32_t word = random_word({key, 0}, i);
    const float unit = static_cast<float>(word >> 8) * 0x1p-23f - 1.0f;
    float value = std::ldexp(unit, static_cast<int>(row * 7 % 23 - 11 + column % 5 - 2));
    if (row == 1) value = 0.0f;
    if (row == 2 && column == 37) value = 30000.0f;
    if (row == 3) {
      const uint32_t bits = word & 0x807fffffu;
      std::memcpy(&value, &bits, sizeof value);
    }
    if (row == 5) value = -0.0f;
    if (column == 7) value = 0.0f;
    if (row == 140 && column == 8) value = -70000.0f;
    if (special && row == 6 && column == 100) value = std::nanf("");
    if (special && row == 8 && column == 20) value = INFINITY;
    if (special && row == 131 && column == 280) value = -INFINITY;
    x[static_cast<size_t>(i)] = value;
  }
  return x;
}

}  // namespace strata::quantize
