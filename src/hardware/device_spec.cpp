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

double roofline_seconds(const DeviceSpec& spec, std::string_view family, std::string_view dtype, double flops,
                        double bytes) {
  double flop_rate = dtype == "bf16" && spec.gemm_flops_bf16 > 0 ? spec.gemm_flops_bf16 : spec.gemm_flops_f32;
  double byte_rate = spec.memory_bytes_per_s;
  for (const FamilyRate& rate : spec.rates) {
    if (rate.family != family || rate.dtype != dtype) continue;
    if (rate.flops_per_s > 0) flop_rate = rate.flops_per_s;
    if (rate.bytes_per_s > 0) byte_rate = rate.bytes_per_s;
    break;
  }
  const double compute = flop_rate > 0 ? flops / flop_rate : 0.0;
  const double memory = byte_rate > 0 ? bytes / byte_rate : 0.0;
  return std::max(compute, memory);
}

bool bf16_is_fast(const DeviceSpec& spec) {
  if (spec.gemm_flops_f32 > 0 && spec.gemm_flops_bf16 > 0) {
    return spec.gemm_flops_bf16 > 1.2 * spec.gemm_flops_f32;
  }
  return spec.isa.avx512_bf16 || spec.isa.amx;
}

}  // namespace strata::hardware
