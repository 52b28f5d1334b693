#include "kernels/cpu/recurrence_pairs.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx.h"

#define STRATA_BF16_INCLUDE "kernels/cpu/recurrence_pairs-inl.h"
#include "kernels/cpu/for_each_bf16_target.h"

namespace strata::cpu::recurrence {

const PairMatmul& pair_matmul() {
#if STRATA_HAS_BF16_NATIVE
  if (detail::has_bf16_pairs()) return bf16_native::recurrence_pairs::kMatmul;
#endif
  return bf16_model::recurrence_pairs::kMatmul;
}

}  // namespace strata::cpu::recurrence
