#include "kernels/cpu/bf16_dot.h"

namespace strata::cpu::detail {

bool has_bf16_pairs() {
#if STRATA_HAS_BF16_NATIVE
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

bool multiplies_pairs_fast(const hardware::IsaFlags& isa) {
  return isa.avx512_bf16 && !isa.amx;
}

}  // namespace strata::cpu::detail
