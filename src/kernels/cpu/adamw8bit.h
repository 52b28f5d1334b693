// AdamW with 8-bit moments (Dettmers et al. 2022), as in bitsandbytes: a moment is a value of its map times
// the largest magnitude in its block of 256 elements. The step is computed in fp32 from the new moments
// before they are rounded to bytes.
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

// g and rate as in adamw_update, and the same formula except
//  m = beta1 m + (1 - beta1) g
// Zeroed memory represents zero moments.
void adamw8bit_update(int64_t n, float* master, const Moments8Bit& moments, const float* grad,
                      const UpdateScalars* scalars, const AdamWConstants& constants);

// A tensor [rows, columns]. The rank holds `width` columns from `first_column`; this run covers rows [row,
// row + rows) of them, stored from row `at` on with `width` elements each. Blocks are numbered through the
// whole tensor, so several ranks may hold parts of one.
struct HeldRun {
  int64_t columns = 0, first_column = 0, width = 0;
  int64_t row = 0, rows = 0, at = 0;
};
// The update of a run takes two passes. Between them the ranks exchange the largest new moments that they
// hold of each block. Both passes read the scales of all blocks from the previous update.
// Raises m_largest and v_largest, [blocks] each, to the largest new moments of the run's elements.
void adamw8bit_largest(const HeldRun& run, const Moments8Bit& moments, const float* grad,
                       const UpdateScalars* scalars, const AdamWConstants& constants, float* m_largest,
                       float* v_largest);
// Takes the maxima over all ranks, which are the new scales, and leaves the stored scales unchanged.
void adamw8bit_update_run(const HeldRun& run, float* master, const Moments8Bit& moments, const float* grad,
                          const UpdateScalars* scalars, const AdamWConstants& constants,
                          const float* m_largest, const float* v_largest);

// codes[n] and scales of x, as computed by bitsandbytes' backend "default": code = the number of borders
// (halfway between two values) below x * (1 / scale).
void quantize_blocks(const DynamicMap& map, int64_t n, const float* x, uint8_t* codes, float* scales);

}  // namespace strata::cpu
