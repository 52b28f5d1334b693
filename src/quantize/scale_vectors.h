// The vector loops of scale rules, for every instruction set. Internal to quantize.
//
// greatest[i] is the magnitude of a block; stored[i] and applied[i] are as ScaleRule::Scale has them.
#pragma once

#include <cstdint>

namespace strata::quantize::tiles {

// max(greatest, least) / largest, rounded up to a power of two if wanted.
void block_scales(const float* greatest, int64_t n, float least, float largest, bool power_of_two,
                  uint32_t* stored, float* applied);
// MxScale::kRoundUp.
void mx_scales_up(const float* greatest, int64_t n, float largest, uint32_t* stored, float* applied);
// e4m3 of greatest / largest / of_tensor, `least` or more.
void nvfp4_scales(const float* greatest, int64_t n, float largest, float of_tensor, float least,
                  uint32_t* stored, float* applied);

// Whether all of n magnitudes are below infinity.
bool all_finite(const float* magnitudes, int64_t n);

}  // namespace strata::quantize::tiles
