// Cross-entropy of rows of logits and its gradient, in portable SIMD. Internal to linear_cross_entropy.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// loss = log(sum_i exp(l[i])) - l[target], over the first `valid` of `vocab` logits; 0 for target -1. l is
// the logits, or softcap · tanh(logits / softcap) where softcap is above 0. The row is working memory.
double cross_entropy_row(float* logits, int64_t valid, int32_t target, float softcap);

// Whether no logit is above the target's.
bool is_greatest(const float* logits, int64_t valid, int32_t target);

// As cross_entropy_row, and gives the row's gradient (softmax - onehot(target)) * scale (times the cap's
// slope) in f32 or bf16, `vocab` elements, zero beyond `valid` and in a row without target. An f32 gradient
// is made in place: gradient == logits. A bf16 one lies elsewhere.
double cross_entropy_gradient_row(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                                  int32_t target, float scale, float softcap);

// row = softcap · tanh(row / softcap), n elements.
void cap_row(float* row, int64_t n, float softcap);

}  // namespace strata::cpu::detail
