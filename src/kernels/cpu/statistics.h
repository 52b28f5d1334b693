// Statistics of arrays: what a run watches of its weights, gradients and activations.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/statistics_table.h"

namespace strata::cpu {

// Elements of an array, as lines of `length` consecutive ones. Line i begins at first + i / per_row · stride +
// i % per_row · length.
struct MeasuredLines {
  DType dtype = DType::kF32;  // f32 or bf16
  int64_t lines = 0, length = 0;
  int64_t per_row = 1, stride = 0, first = 0;
  float largest = 0;  // an element is saturated from this magnitude on; 0: none is
};
// One line of n elements.
MeasuredLines flat_lines(int64_t n, DType dtype);

// Blocks of a fixed size are measured separately and added in order, so that the bits do not depend on the
// number of threads. Blocks are whole lines; a single line is cut into several blocks, and row_squares is
// that of a block.
int64_t measured_blocks(const MeasuredLines& lines);
// `blocks`: measured_blocks(lines) entries.
StatisticsTable measure(const MeasuredLines& lines, const void* x, StatisticsTable* blocks);

// Element i of m evenly spaced ones of n; m ≤ n.
constexpr int64_t sampled_place(int64_t i, int64_t m, int64_t n) {
  return static_cast<int64_t>(static_cast<__int128>(i) * n / m);
}
void take_sample(float* sample, int64_t m, const float* x, int64_t n);
// Of x − sample at the sampled places.
StatisticsTable measure_change(const float* x, int64_t n, const float* sample, int64_t m);

}  // namespace strata::cpu
