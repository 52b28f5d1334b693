// Statistics of arrays: what a run watches of its weights, gradients and activations.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

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

// NaN and infinities count in `nonfinite` and `elements` only.
struct Measured {
  double sum = 0, squares = 0;
  double greatest = 0;      // magnitude
  double line_squares = 0;  // the greatest sum of squares of a line
  double nonfinite = 0;     // NaN or infinite
  double zeros = 0;         //
  double saturated = 0;     //
  double flushed = 0;       // not 0, and below the smallest normal number
  double elements = 0;
};

// Blocks of a fixed size are measured separately and added in order, so that the bits do not depend on the
// number of threads. Blocks are whole lines; a single line is cut into several blocks, and line_squares is
// that of a block.
int64_t measured_blocks(const MeasuredLines& lines);
// `blocks`: measured_blocks(lines) entries.
Measured measure(const MeasuredLines& lines, const void* x, Measured* blocks);
void add(Measured& to, const Measured& more);

// Element i of m evenly spaced ones of n; m ≤ n.
constexpr int64_t sampled_place(int64_t i, int64_t m, int64_t n) {
  return static_cast<int64_t>(static_cast<__int128>(i) * n / m);
}
void take_sample(float* sample, int64_t m, const float* x, int64_t n);
// Of x − sample at the sampled places.
Measured measure_change(const float* x, int64_t n, const float* sample, int64_t m);

}  // namespace strata::cpu
