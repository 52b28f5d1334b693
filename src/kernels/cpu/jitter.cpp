#include "kernels/cpu/jitter.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/cpu/row_blocks.h"

namespace strata::cpu {

// Element c of a row draws number c mod 4 of counter (sample, place · ⌈columns / 4⌉ + ⌊c / 4⌋).
void jitter(const JitterShape& shape, float* y, const float* x, const int32_t* places) {
  const int64_t fours = (shape.columns + 3) / 4;
  parallel_ranges(shape.rows, rows_per_task(shape.columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto sample = static_cast<uint32_t>(places[2 * row]);
      const int64_t first = places[2 * row + 1] * fours;
      for (int64_t c = 0; c < shape.columns; c += 4) {
        const auto bits = philox({.stream = shape.stream}, static_cast<uint64_t>(first + c / 4), sample);
        for (int64_t i = c; i < std::min(c + 4, shape.columns); ++i) {
          const float u = uniform_float(bits[static_cast<size_t>(i - c)]);
          y[row * shape.columns + i] = x[row * shape.columns + i] * (1 - shape.eps + 2 * shape.eps * u);
        }
      }
    }
  });
}

void sample_places(int64_t samples, int64_t rows, int32_t* places, const int32_t* numbers) {
  for (int64_t row = 0; row < samples * rows; ++row) {
    places[2 * row] = numbers[row / rows];
    places[2 * row + 1] = static_cast<int32_t>(row % rows);
  }
}

}  // namespace strata::cpu
