#include <cmath>

#include "base/parallel.h"
#include "kernels/cpu/rope.h"

namespace strata::cpu {

void fill_rope_table(float* table, int64_t max_positions, std::span<const double> frequencies,
                     double magnitude) {
  const auto row_size = static_cast<int64_t>(2 * frequencies.size());
  parallel_ranges(max_positions, 64, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      float* row = table + position * row_size;
      for (const double f : frequencies) {
        const double angle = static_cast<double>(position) * f;
        *row++ = static_cast<float>(magnitude * std::cos(angle));
        *row++ = static_cast<float>(magnitude * std::sin(angle));
      }
    }
  });
}

}  // namespace strata::cpu
