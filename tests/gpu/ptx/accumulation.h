// Models of how a tensor core adds products.
#pragma once

#include <cstdint>
#include <span>

#include "ptx/floating.h"

namespace strata::gpu_tests {

// The products of a group of consecutive k and the sum so far are aligned to the largest exponent, cut to
// `fraction` bits below it, added exactly and rounded to fp32; then follows the next group.
struct AccumulationModel {
  unsigned group = 16;
  unsigned fraction = 24;
  bool normalized = false;  // the largest exponent is that of the product in [1, 2), not of its factors
  bool floor = false;       // cut towards minus infinity instead of zero
  bool nearest = false;     // the sum is rounded to nearest instead of towards zero
  bool apart = false;       // the sum so far is added in fp32 after the group's products

  // c + Σ a[k] · b[k], with fp32 bits for c and the result and `format`'s for at most 16 a and b.
  uint32_t operator()(std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
                      Format format) const;
};

// An mma of sm_90: all of its k, at most 16, are one group.
inline constexpr AccumulationModel kHopperSum{.group = 16, .fraction = 25};

}  // namespace strata::gpu_tests
