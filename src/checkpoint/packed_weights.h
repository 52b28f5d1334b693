// Presents weights that were published in fp8 or MXFP4 as fp32 tensors, unpacked while they are read:
//
//   fp8 in blocks (DeepSeek-V3): NAME in F8_E4M3 [R, C] and NAME_scale_inv in F32 [⌈R/128⌉, ⌈C/128⌉]. A weight
//     is its number times the scale of its block of 128 by 128.
//   fp8 with one scale (compressed-tensors): NAME in F8_E4M3 [R, C] and NAME_scale, a float or one a row: [R, 1].
//   Both also with F8_E5M2, F8_E4M3FNUZ or F8_E5M2FNUZ in place of F8_E4M3 (quantize/formats.h).
//   MXFP4 (gpt-oss): NAME_blocks in U8 [E, O, G, 16] and NAME_scales in U8 [E, O, G]. The 32 weights of a
//     block are E2M1, two per byte, the lower half first, times 2^(scale − 127). Presented as
//     NAME [E, 32 · G, O], inputs first, as in the unpacked files. Format: OCP Microscaling specification 1.0.
#pragma once

#include "checkpoint/huggingface.h"

namespace strata::checkpoint {

inline constexpr int64_t kFp8Block = 128;  // rows and columns
constexpr int64_t fp8_blocks_in(int64_t size) {
  return size / kFp8Block +
         (size % kFp8Block == 0 ? 0 : 1);  // also of sizes that only empty tensors can have
}
inline constexpr int64_t kMxfp4Block = 32;  // inputs

// Replaces packed tensors and their scales by the unpacked tensors. DataError if their shapes do not match, and, while they
// are read, for a scale that is zero, negative, NaN or infinite.
void unpack_weights(TensorSource& source);

}  // namespace strata::checkpoint
