// Kernels on pairs of bf16 values: whether this processor multiplies them itself (VDPBF16PS).
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#define STRATA_HAS_BF16_NATIVE 1
#else
#define STRATA_HAS_BF16_NATIVE 0
#endif

namespace strata::cpu::detail {

// False: the model of the instruction computes, with the same bits, for tests.
bool has_bf16_pairs();

}  // namespace strata::cpu::detail

// Calls FUNCTION of the namespace that this processor can run. Stands in the namespace strata::cpu or inside
// it.
#if STRATA_HAS_BF16_NATIVE
#define STRATA_BF16_CALL(FUNCTION)                                            \
  (strata::cpu::detail::has_bf16_pairs() ? strata::cpu::bf16_native::FUNCTION \
                                         : strata::cpu::bf16_model::FUNCTION)
#else
#define STRATA_BF16_CALL(FUNCTION) strata::cpu::bf16_model::FUNCTION
#endif
