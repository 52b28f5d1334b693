// Cross-entropy of rows of logits and its gradient, in portable SIMD. Internal to linear_cross_entropy.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// loss = log(sum_i exp(logits[i])) - logits[target], over the first `valid` of `vocab` logits; 0 for target
// -1.
double cross_entropy_row(const float* logits, int64_t valid, int32_t target);

// Whether no logit is above the target's.
bool is_greatest(const float* logits, int64_t valid, int32_t target);

// The same, and replaces the row by its gradient (softmax - onehot(target)) * scale in f32 or bf16 (at the
// same address), zero beyond `valid` and in a row without target.
double cross_entropy_gradient_row(float* logits, DType gradient_dtype, int64_t valid, int64_t vocab,
                                  int32_t target, float scale);

}  // namespace strata::cpu::detail
