// Quantised operands for tests of matmuls, and their matmuls in fp64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/scaled_operand.h"
#include "quantize/quantizer_testing.h"
#include "quantize/subnormals.h"

namespace strata::cpu::testing {

// Every rule of operands, along rows and in squares.
inline std::vector<quantize::ScaleRule> operand_rules() {
  using quantize::Format;
  using quantize::PowerOfTwo;
  using quantize::ScaleRule;
  return {ScaleRule::tensor(Format::kE4M3),
          ScaleRule::delayed(Format::kE5M2),
          ScaleRule::row(Format::kE4M3),
          ScaleRule::row(Format::kE5M2, PowerOfTwo::kNo),
          ScaleRule::block_row(Format::kE4M3),
          ScaleRule::block_row(Format::kE4M3, PowerOfTwo::kYes),
          ScaleRule::block_square(Format::kE4M3),
          ScaleRule::mx(Format::kE4M3),
          ScaleRule::mx(Format::kE2M1, quantize::MxScale::kFloor),
          ScaleRule::mx(Format::kE3M2),
          ScaleRule::nvfp4_row(),
          ScaleRule::nvfp4_square()};
}

// A matrix in codes, and its values [count, depth] as dequantize() has them.
struct QuantizedOperand {
  ScaledOperand operand;
  int64_t count = 0, depth = 0;
  quantize::Result result = {};
  std::vector<double> values = {};

  ScaledMatrix matrix() const { return {result.codes.data(), result.scales.data(), result.greatest.data()}; }
  void decode() {
    const quantize::KeepSubnormals keep;  // also of fp32 numbers that become fp64
    const std::vector<float> stored = quantize::dequantized(operand.rule, result);
    values.resize(stored.size());
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t d = 0; d < depth; ++d)
        values[static_cast<size_t>(i * depth + d)] =
            stored[static_cast<size_t>(operand.depth_first ? d * count + i : i * depth + d)];
    }
  }
};

// `stored`: the matrix as the operand stores it.
inline QuantizedOperand quantized_operand(const ScaledOperand& operand, const std::vector<float>& stored,
                                          int64_t count, int64_t depth) {
  QuantizedOperand made{.operand = operand, .count = count, .depth = depth};
  const auto source = operand.depth_first ? quantize::source_of(stored, depth, count)
                                          : quantize::source_of(stored, count, depth);
  made.result = quantize::quantized(source, {operand.rule}, quantize::Along::kRows);
  made.decode();
  return made;
}

// Values of many sizes with outliers, zeros and subnormal numbers.
inline QuantizedOperand hard_operand(const ScaledOperand& operand, int64_t count, int64_t depth,
                                     uint64_t seed) {
  return quantized_operand(operand,
                           quantize::golden_matrix({seed, 9}, operand.depth_first ? depth : count,
                                                   operand.depth_first ? count : depth, false),
                           count, depth);
}

// c[rows, cols] in fp64, and the sum of the magnitudes of its terms.
struct Product64 {
  std::vector<double> sums, sizes;
};
inline Product64 product_of(const QuantizedOperand& a, const QuantizedOperand& b) {
  Product64 product;
  for (int64_t i = 0; i < a.count; ++i) {
    for (int64_t j = 0; j < b.count; ++j) {
      const double* const x = a.values.data() + i * a.depth;
      const double* const y = b.values.data() + j * b.depth;
      double sum = 0, size = 0;
      for (int64_t d = 0; d < a.depth; ++d) {
        sum += x[d] * y[d];
        size += std::abs(x[d] * y[d]);
      }
      product.sums.push_back(sum);
      product.sizes.push_back(size);
    }
  }
  return product;
}

}  // namespace strata::cpu::testing
