#include "hardware/device_spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::hardware {

std::string IsaFlags::str() const {
  std::string text;
  auto add = [&](bool has, const char* name) {
    if (has) text += text.empty() ? name : fmt::format("+{}", name);
  };
  add(avx2, "avx2");
  add(avx512, "avx512");
  add(avx512_bf16, "avx512_bf16");
  add(amx, "amx");
  add(neon, "neon");
  return text.empty() ? "baseline" : text;
}

bool bf16_is_fast(const DeviceSpec& spec) {
  if (spec.gemm_flops_f32 > 0 && spec.gemm_flops_bf16 > 0) {
    return spec.gemm_flops_bf16 > 1.2 * spec.gemm_flops_f32;
  }
  return spec.isa.avx512_bf16 || spec.isa.amx;
}

}  // namespace strata::hardware
