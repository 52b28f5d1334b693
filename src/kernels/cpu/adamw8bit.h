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
                      const UpdateScalars* scalars, float weight_decay, float lr_scale);

// codes[n] and scales of x, as bitsandbytes' backend "default" makes them: code = the number of borders
// (halfway between two values) below x * (1 / scale).
void quantize_blocks(const DynamicMap& map, int64_t n, const float* x, uint8_t* codes, float* scales);

}  // namespace strata::cpu
