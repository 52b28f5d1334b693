// bf16 dot products: whether this processor has VDPBF16PS and whether to use it.
#pragma once

#include "hardware/device_spec.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define STRATA_HAS_BF16_NATIVE 1
#else
#define STRATA_HAS_BF16_NATIVE 0
#endif

namespace strata::cpu::detail {

// If false, the model of the instruction computes the same bits, for tests.
bool has_bf16_pairs();

// Whether bf16 dot products pay off on a processor. With AMX, VDPBF16PS takes twice as long as an fp32 FMA
// (Emerald Rapids: 87 and 176 GFLOP/s a core), so it computes no more.
bool multiplies_pairs_fast(const hardware::IsaFlags& isa);

}  // namespace strata::cpu::detail

// Calls FUNCTION of the namespace that this processor can run. Use it in namespace strata::cpu or inside.
#if STRATA_HAS_BF16_NATIVE
#define STRATA_BF16_CALL(FUNCTION)                                            \
  (strata::cpu::detail::has_bf16_pairs() ? strata::cpu::bf16_native::FUNCTION \
                                         : strata::cpu::bf16_model::FUNCTION)
#else
#define STRATA_BF16_CALL(FUNCTION) strata::cpu::bf16_model::FUNCTION
#endif
