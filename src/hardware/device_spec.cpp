#include "hardware/device_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace strata::hardware {

std::string_view to_string(Precision precision) {
  static constexpr std::string_view kNames[kPrecisions] = {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"};
  return kNames[static_cast<size_t>(precision)];
}

std::optional<Precision> parse_precision(std::string_view name) {
  for (const Precision precision : kAllPrecisions) {
    if (to_string(precision) == name) return precision;
  }
  return std::nullopt;
}

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

IsaFlags limited_to(IsaFlags isa, std::string_view limit) {
  static constexpr std::string_view kOrder[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
  const auto* const found = std::find(std::begin(kOrder), std::end(kOrder), limit);
  if (found == std::end(kOrder)) {
    throw ConfigError("{}={}: expected {}", kIsaLimitVariable, limit, fmt::join(kOrder, ", "));
  }
  const auto rank = found - std::begin(kOrder);
  isa.avx2 = isa.avx2 && rank >= 1;
  isa.avx512 = isa.avx512 && rank >= 2;
  isa.avx512_bf16 = isa.avx512_bf16 && rank >= 3;
  isa.amx = isa.amx && rank >= 4;
  return isa;
}

bool bf16_is_fast(const DeviceSpec& spec) {
  const double f32 = spec.gemm_flops[Precision::kFp32], bf16 = spec.gemm_flops[Precision::kBf16];
  if (f32 > 0 && bf16 > 0) return bf16 > 1.2 * f32;
  return spec.isa.avx512_bf16 || spec.isa.amx || spec.architecture >= 80;
}

}  // namespace strata::hardware
