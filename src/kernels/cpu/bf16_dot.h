// Kernels on pairs of bf16 values: whether this processor multiplies them itself (VDPBF16PS).
#pragma once

#include "hardware/device_spec.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define STRATA_HAS_BF16_NATIVE 1
#else
#define STRATA_HAS_BF16_NATIVE 0
#endif

namespace strata::cpu::detail {

// False: the model of the instruction computes, with the same bits, for tests.
bool has_bf16_pairs();

// Whether pairs are worth it on a processor. Those with AMX tiles take twice as long for VDPBF16PS as for an
// fp32 FMA (Emerald Rapids: 87 and 176 GFLOP/s a core): its products are not more.
bool multiplies_pairs_fast(const hardware::IsaFlags& isa);

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
