// Cross-entropy of rows of logits and its gradient, in portable SIMD. Internal to linear_cross_entropy.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// loss = log(sum_i exp(l[i])) - l[target], over the first `valid` of `vocab` logits; 0 for target -1. l is
// the logits, or softcap · tanh(logits / softcap) where softcap is above 0. The row is working memory.
double cross_entropy_row(float* logits, int64_t valid, int32_t target, float softcap);

// Of `valid` logits (capped as above, in place): what the loss needs of a part of the vocabulary.
struct RowStatistics {
  float maximum;
  float sum;           // of exp(l - maximum)
  float target_logit;  // -infinity where the target is not in this part
};
// `target`: its column, or -1 where it is in another part.
RowStatistics row_statistics(float* logits, int64_t valid, int64_t target, float softcap);

// Whether no logit is above the target's.
bool is_greatest(const float* logits, int64_t valid, int32_t target);

// As cross_entropy_row, and gives the row's gradient (softmax - onehot(target)) * scale (times the cap's
// slope) in f32 or bf16, `vocab` elements, zero beyond `valid` and in a row without target. An f32 gradient
// is made in place: gradient == logits. A bf16 one lies elsewhere.
double cross_entropy_gradient_row(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                                  int32_t target, float scale, float softcap);

// The row's gradient by that of its statistics: of what the sum of the loss is with respect to each.
struct StatisticsGradient {
  float maximum = 0;     // as row_statistics gave it
  float of_sum = 0;      // the gradient of the sum,
  float of_target = 0;   //   of the target's logit (not read where the target is in another part),
  float of_maximum = 0;  //   of the maximum where the sum stays; 0 for the loss, which does not depend on it
};
// As cross_entropy_gradient_row, to the bit where the statistics are those of all logits.
void statistics_gradient_row(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                             int64_t target, const StatisticsGradient& given, float softcap);

// row = softcap · tanh(row / softcap), n elements.
void cap_row(float* row, int64_t n, float softcap);

// Adds up the losses of tokens and counts their targets, in the order of tokens: neither chunks nor threads
// nor the form of the loss change the sum.
struct LossSums {
  double* sum;
  int64_t* count;
  float* of_tokens;  // the losses as fp32; may be null
};
void sum_losses(int64_t tokens, const double* losses, const int32_t* targets, bool accumulate,
                const LossSums& to);

}  // namespace strata::cpu::detail
