// Weights that were published in fewer bits than a model computes with, as plain fp32 tensors of the same
// files, made as they are read:
//
//   fp8 by blocks (DeepSeek-V3): NAME in F8_E4M3 [R, C] and NAME_scale_inv in F32 [⌈R/128⌉, ⌈C/128⌉]; a
//   weight is
//     its number times the scale of its block of 128 by 128
//   MXFP4 (gpt-oss): NAME_blocks in U8 [E, O, G, 16] and NAME_scales in U8 [E, O, G]; the 32 weights of a
//   block
//     are E2M1, two a byte, the lower half first, times 2^(scale − 127). As NAME [E, 32 · G, O], inputs
//     first, which is how the unpacked files hold it. Formats: OCP Microscaling specification 1.0.
#pragma once

#include "checkpoint/huggingface.h"

namespace strata::checkpoint {

// Puts such tensors in the place of those that they are made of. DataError where the parts do not fit.
void unpack_weights(TensorSource& source);

}  // namespace strata::checkpoint
