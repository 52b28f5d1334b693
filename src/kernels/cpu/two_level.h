// Logits of two-level routing, as ops/two_level defines them.
#pragma once

#include <cstdint>

namespace strata::cpu {

struct TwoLevelShape {
  int64_t tokens = 0, groups = 1, experts = 1;
};
void two_level_logits(const TwoLevelShape& shape, float* y, const float* groups, const float* logits);
void two_level_logits_backward(const TwoLevelShape& shape, float* d_groups, float* d_logits, const float* dy,
                               const float* groups, const float* logits);

}  // namespace strata::cpu
