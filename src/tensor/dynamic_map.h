// The 256 values that one byte may stand for, as bitsandbytes' create_dynamic_map has them (Dettmers 2016,
// Dettmers et al. 2022): a dynamic exponent and as many bits of fraction as it leaves. Sorted, within [-1,
// 1].
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace strata {

struct DynamicMap {
  std::array<float, 256> values;

  // The nearest value's code without a search: the bits of |x| above `shift`, counted from those of the
  // smallest magnitude that matters, name an interval that holds at most one border between two codes. Where
  // the map has negative values their intervals follow, `sign_offset` further on.
  int shift = 0;
  int32_t first_bits = 0;   // |x| below it counts as this
  int32_t sign_offset = 0;  // 0: no negative values
  std::vector<int32_t> code;
  std::vector<float> border;  // x above it has the next code
};

// The maps of the first and of the second moment.
const DynamicMap& signed_dynamic_map();
const DynamicMap& unsigned_dynamic_map();

// Elements that share one scale, the largest magnitude among them.
inline constexpr int64_t kQuantizationBlock = 256;
constexpr int64_t quantization_blocks(int64_t n) {
  return (n + kQuantizationBlock - 1) / kQuantizationBlock;
}

}  // namespace strata
