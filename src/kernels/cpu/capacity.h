// Experts with limited capacity, as ops/capacity defines them.
#pragma once

#include <cstdint>

namespace strata::cpu {

struct CapacityShape {
  int64_t tokens = 0, k = 1, experts = 1;
  int64_t rows = 1;  // tokens of a group
  int64_t capacity = 1;
  bool greatest = false;           // keep the pairs with the greatest scores, not the first ones
  int64_t sequence = 1, idle = 0;  // the last `idle` tokens of each `sequence` tokens have no experts
  bool has_slots(int64_t token) const { return token % sequence < sequence - idle; }
};
int64_t limit_experts_scratch_bytes(const CapacityShape& shape);
// kept[tokens · k]: ids, or -1. begins[tokens] may be null.
void limit_experts(const CapacityShape& shape, int32_t* kept, const int32_t* ids, const float* weights,
                   const int32_t* begins, void* scratch);
// kept[i] = weights[i], or 0 where ids[i] is below 0; NaN stays.
void weights_of_kept(int64_t slots, float* kept, const float* weights, const int32_t* ids);

}  // namespace strata::cpu
