// The tokens of token–expert pairs ("slots").
#pragma once

#include <cstdint>

#include "kernels/gpu/intrinsics.cuh"

namespace strata::gpu {

// Token n has the pairs [token_offsets[n], token_offsets[n + 1]); null: per_token each.
__device__ __forceinline__ int token_of_slot(const int32_t* token_offsets, int token_count, int per_token,
                                             int slot) {
  if (token_offsets == nullptr) return slot / per_token;
  // The last token that begins at or before the pair.
  int low = 0, high = token_count;
  while (low + 1 < high) {
    const int middle = (low + high) / 2;
    if (token_offsets[middle] <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace strata::gpu
