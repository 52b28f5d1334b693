// Rotary position embedding. Pair i of a head is (i, i + rotary_dim / 2), or (2i, 2i + 1) if `adjacent`, both
// relative to `first`; it is rotated by the angle position * frequency(i). Other elements are copied.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace strata::cpu {

struct RopeShape {
  int64_t rows = 0;
  int64_t heads = 0;  // heads that rotate, at the start of a row
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // even; first + rotary_dim is at most head_dim
  int64_t row_stride = 0;  // elements between rows of `in` and of `out`
  DType dtype = DType::kF32;
  int64_t first = 0;
  bool adjacent = false;
};

// out = in, rotated (inverse: rotated back, which is the gradient). table is [max_positions, rotary_dim / 2,
// 2], cosine then sine; positions[rows] indexes it. out may be in.
void rope(const RopeShape& shape, void* out, const void* in, const float* table, const int32_t* positions,
          bool inverse);

// Fills the table of `rope`: cosines and sines of position · frequency, times `magnitude`, computed in f64.
void fill_rope_table(float* table, int64_t max_positions, std::span<const double> frequencies,
                     double magnitude = 1);

// Copies rows [q | rest], with q times 1 + scale · log(1 + ⌊(position + 1) / floor⌋) (ops/temper). y may
// alias x.
struct TemperShape {
  int64_t rows = 0, q_width = 0, width = 0;
  int64_t floor = 1;
  float scale = 0;
  DType dtype = DType::kF32;
};
void temper(const TemperShape& shape, void* y, const void* x, const int32_t* positions);

}  // namespace strata::cpu
