// Matmuls of blocks, and a single dot product. Compiled by for_each_bf16_target.h.
#include "kernels/cpu/bf16_block-inl.h"

namespace strata::cpu::STRATA_BF16_TARGET {

// sums[16] += a[32] · b[32], pair by pair.
[[gnu::noinline]] inline void dot_of_pairs(float* sums, const BF16* a, const BF16* b) {
  store_sums(sums, dot(load_sums(sums), load_pairs(a), load_pairs(b)));
}

}  // namespace strata::cpu::STRATA_BF16_TARGET
