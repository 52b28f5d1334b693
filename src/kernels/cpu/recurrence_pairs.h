// Matmuls of recurrences: operands and targets, and those that round fp32 operands to bf16 for VDPBF16PS.
// Matrices have rows padded to multiples of 16 and columns to whole cache lines; what pads is 0. Internal.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::recurrence {

struct Matrix {
  const float* at;
  int64_t stride;
};
// The target of a matmul: c = factor · a b [+ more], with a factor a row or one for all.
struct Target {
  float* at;
  int64_t stride;
  float factor = 1;
  const float* rows = nullptr;
  // A term with the same stride, perhaps the target itself; and factors of its rows.
  const float* more = nullptr;
  const float* more_rows = nullptr;
};
// c += factor · a b.
inline Target adding_to(float* at, int64_t stride, float factor = 1, const float* rows = nullptr) {
  return {at, stride, factor, rows, at};
}
// Which entries of the operands are not 0, by rows i and columns j of the matrix that is square.
enum class Part : uint8_t {
  kAll,
  kLower,        // a(i, j) of i ≥ j
  kLowerAcross,  // a is read across: a(j, i) of j ≥ i
  kLowerResult,  // of the result only these are wanted: c(i, j) of i ≥ j, and whole tiles
};

// The operands of a matmul in bf16.
constexpr int64_t pair_values(int64_t rows, int64_t columns, int64_t depth) {
  return (rows + columns) * ((depth + 31) / 32 * 32);
}
// [rows, columns] = a [rows, depth] · b [depth, columns], or a [depth, rows] if across. Operands are rounded to
// nearest, ties to even; sums are fp32, of two depths at a time. `memory`: pair_values() values, aligned to 64
// bytes.
struct PairMatmul {
  void (*multiply)(bool across, int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b,
                   const Target& to, Part part, BF16* memory);
};
// By the processor's instruction if it has it, otherwise by a model with the same bits.
const PairMatmul& pair_matmul();

}  // namespace strata::cpu::recurrence
