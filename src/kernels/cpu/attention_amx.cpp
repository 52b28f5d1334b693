#include <cstring>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention_pairs.h"

#define STRATA_BF16_INCLUDE "kernels/cpu/attention_amx-inl.h"
#include "kernels/cpu/for_each_bf16_target.h"

namespace strata::cpu::attention {

const TileProducts& tile_products() {
#if STRATA_HAS_BF16_NATIVE && STRATA_HAS_AMX
  if (detail::has_bf16_pairs() && detail::has_amx_tiles())
    return bf16_native::attention_amx::kProducts<detail::NativeTiles>;
#endif
  return model_tile_products();
}

const TileProducts& model_tile_products() {
  return bf16_model::attention_amx::kProducts<detail::ModelTiles>;
}

const TileProducts* half_native_tile_products() {
#if STRATA_HAS_BF16_NATIVE
  return &bf16_native::attention_amx::kProducts<detail::ModelTiles>;
#else
  return nullptr;
#endif
}

}  // namespace strata::cpu::attention
