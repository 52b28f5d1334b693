// Models of how a tensor core adds products, to find the one that a card follows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

  std::string name() const;
  // c + Σ a[k] · b[k], with fp32 bits for c and the result and `format`'s for a and b.
  uint32_t operator()(std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
                      Format format) const;
};

std::vector<AccumulationModel> accumulation_models(unsigned depth);

}  // namespace strata::gpu_tests
