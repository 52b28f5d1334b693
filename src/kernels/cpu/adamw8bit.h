// AdamW whose moments are bytes (Dettmers et al. 2022), as bitsandbytes has it: a moment is a value of its
// map times the largest magnitude in its block of 256 elements. The step itself is done in fp32, with the new
// moments as they were before they were rounded to bytes.
#pragma once

#include <cstdint>

#include "kernels/cpu/optimizer.h"
#include "tensor/dynamic_map.h"

namespace strata::cpu {

struct Moments8Bit {
  uint8_t* m = nullptr;      // [n], codes of signed_dynamic_map()
  float* m_scale = nullptr;  // [quantization_blocks(n)]
  uint8_t* v = nullptr;      // [n], codes of unsigned_dynamic_map()
  float* v_scale = nullptr;
};

// g and rate as adamw_update has them, and the same formula but for
//   m = beta1 m + (1 - beta1) g
// Memory of zeros stands for moments of zero.
void adamw8bit_update(int64_t n, float* master, const Moments8Bit& moments, const float* grad,
                      const UpdateScalars* scalars, const AdamWConstants& constants);

// A tensor [rows, columns] of which a rank holds `width` columns from `first_column` on, and of these columns
// in one run the rows [row, row + rows): in memory from row `at` on, rows of `width` elements. Blocks are
// counted through the whole tensor, so that several ranks may hold parts of one.
struct HeldRun {
  int64_t columns = 0, first_column = 0, width = 0;
  int64_t row = 0, rows = 0, at = 0;
};
// The update of a run takes two passes, between which the ranks tell each other the greatest new moments that
// they hold of each block. Both read the scales of all blocks, as the update before left them.
// Raises m_largest and v_largest, [blocks] each, to the largest new moments of the run's elements.
void adamw8bit_largest(const HeldRun& run, const Moments8Bit& moments, const float* grad,
                       const UpdateScalars* scalars, const AdamWConstants& constants, float* m_largest,
                       float* v_largest);
// With the largest of all ranks, which are the new scales: leaves the scales as they are.
void adamw8bit_update_run(const HeldRun& run, float* master, const Moments8Bit& moments, const float* grad,
                          const UpdateScalars* scalars, const AdamWConstants& constants,
                          const float* m_largest, const float* v_largest);

// codes[n] and scales of x, as bitsandbytes' backend "default" makes them: code = the number of borders
// (halfway between two values) below x * (1 / scale).
void quantize_blocks(const DynamicMap& map, int64_t n, const float* x, uint8_t* codes, float* scales);

}  // namespace strata::cpu
