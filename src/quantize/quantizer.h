// Quantizes matrices: fp32 or bf16 to codes of at most 8 bits with scales, along rows, along columns, or both in one
// pass over the source; and back.
//
// The result along columns is that of the transposed matrix, codes and scales: [columns, rows], rounded from the source
// and not from the codes along rows. Weight gradients read it, because they sum over rows.
// Results are the same for any number of threads, for every instruction set, and whether or not threads flush subnormal
// numbers. Edges that no block divides have smaller blocks. All functions use the compute threads (base/parallel.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "quantize/formats.h"
#include "quantize/hadamard.h"
#include "quantize/scale_rule.h"
#include "tensor/dtype.h"

namespace strata::quantize {

// A matrix in memory, kF32 or kBF16. Not owned.
struct Source {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  int64_t stride = 0;  // elements from one row to the next
  // Its place in the whole tensor, by which stochastic rounding counts elements: element (i, j) of this matrix is
  // number first + i * pitch + j. A pitch of 0 stands for `columns`.
  int64_t first = 0, pitch = 0;
  // Rows that are tokens, whose order depends on ranks and micro-batches: for each row the number of its sample and its
  // place p there. Element (i, j) is then number first + p * pitch + j of the step that the sample's number stands for.
  const int32_t* places = nullptr;
  // Where the matrix has only some columns of the whole: runs of consecutive ones, ascending, the first at column 0. A
  // column's number then takes the place of j. Empty: column j is number j.
  std::span<const ColumnRun> runs = {};
};

enum class Along : uint8_t { kRows, kColumns };

// How the values of one result are made.
struct Treatment {
  ScaleRule rule;
  // Rounds stochastically. Two results of one source take separate streams, or their errors are the same.
  std::optional<StochasticBits> stochastic = {};
  // Transforms every 16 consecutive elements of a row of the result first; fewer at its end stay as they are (in both
  // operands of a matmul, so that it still agrees).
  std::optional<HadamardSigns> hadamard = {};
};

// One result: layout_of(rule, rows, columns), of the transposed shape along columns. Memory of the caller.
struct Quantized {
  void* codes = nullptr;
  void* scales = nullptr;
};
struct Request {
  Treatment treatment;
  Quantized to;
  const float* greatest = nullptr;  // as many as layout.greatest; nullptr for none
  // Raised to the greatest magnitude that the source has, NaN above every number: for rules whose scales do not depend on
  // it, without a transform. nullptr: not wanted.
  float* found = nullptr;
};

// The greatest magnitudes that treatment.rule needs (QuantizedLayout::greatest), of the transformed values if the
// treatment transforms; NaN wins over every number. What ranks share they reduce by maximum before they quantize.
void find_greatest(const Source& source, const Treatment& treatment, Along along, float* greatest);

void quantize(const Source& source, const std::optional<Request>& along_rows,
              const std::optional<Request>& along_columns);

// out[i * stride + j] = code · scale, of a matrix [rows, columns] as stored. `greatest` as when it was quantized: nvfp4
// needs it, other rules ignore it. A Hadamard transform stays.
void dequantize(const ScaleRule& rule, int64_t rows, int64_t columns, const void* codes, const void* scales,
                const float* greatest, float* out, int64_t stride);

}  // namespace strata::quantize
