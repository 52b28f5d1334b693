// How a device keeps the sums of a matmul of codes.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata::quantize {

enum class PartialSums : uint8_t {
  kF32,
  // A model of Hopper's fp8 tensor cores, of which each instruction adds 32 numbers to an accumulator after all are
  // aligned to the greatest exponent among them and cut to 14 significant bits (DeepSeek-V3 technical report, section
  // 3.3.2, and DeepGEMM). Rules of e4m3 and e5m2 without MX scales. Slow: for studies of precision.
  kHopper,          // one accumulator for the whole depth, or as far as scales are constant
  kHopperPromoted,  // added to fp32 every 128 of the depth
};
constexpr std::string_view name_of(PartialSums sums) {
  switch (sums) {
    case PartialSums::kF32:
      return "f32";
    case PartialSums::kHopper:
      return "hopper";
    case PartialSums::kHopperPromoted:
      return "hopper_promoted";
  }
  return {};
}

}  // namespace strata::quantize
