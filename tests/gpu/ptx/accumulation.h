// Models of addition in tensor cores.
#pragma once

#include <cstdint>
#include <span>

#include "ptx/floating.h"

namespace strata::gpu_tests {

// The terms a · b of a group of consecutive k and the previous sum are aligned to the largest exponent,
// truncated to `fraction` bits below it, added exactly and rounded to fp32; then the next group follows.
struct AccumulationModel {
  unsigned group = 16;
  unsigned fraction = 24;
  bool normalized = false;  // exponents are those of terms in [1, 2), not sums of the factors' exponents
  bool floor = false;       // truncated towards minus infinity instead of zero
  bool nearest = false;     // the sum is rounded to nearest instead of towards zero
  bool apart = false;       // the previous sum is added in fp32 after the group's terms

  // c + Σ a[k] · b[k]; c and the result are fp32 bits, the at most 16 a and b are bits of `format`.
  uint32_t operator()(std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
                      Format format) const;
};

// mma of sm_90: all of its k, at most 16, form one group.
inline constexpr AccumulationModel kHopperSum{.group = 16, .fraction = 25};

}  // namespace strata::gpu_tests
