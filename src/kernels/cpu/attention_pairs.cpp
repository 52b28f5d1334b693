#include <cstring>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention_pairs.h"

#define STRATA_BF16_INCLUDE "kernels/cpu/attention_pairs-inl.h"
#include "kernels/cpu/for_each_bf16_target.h"

namespace strata::cpu::attention {

const PairProducts* native_pair_products() {
#if STRATA_HAS_BF16_NATIVE
  return &bf16_native::attention_pairs::kProducts;
#else
  return nullptr;
#endif
}

const PairProducts& model_pair_products() {
  return bf16_model::attention_pairs::kProducts;
}

const PairProducts& pair_products() {
  return detail::has_bf16_pairs() ? *native_pair_products() : model_pair_products();
}

}  // namespace strata::cpu::attention
