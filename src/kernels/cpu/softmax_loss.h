// Cross-entropy of rows of logits and its gradient in portable SIMD. Internal to linear_cross_entropy.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// loss = log(sum_i exp(l[i])) - l[target] over the first `valid` of `vocab` logits; 0 for target -1. l is the
// logits, or softcap · tanh(logits / softcap) if softcap > 0. The row is overwritten.
double cross_entropy_row(float* logits, int64_t valid, int32_t target, float softcap);

// Statistics of `valid` logits (capped in place as above), from which the loss of a split vocabulary is
// computed.
struct RowStatistics {
  float maximum;
  float sum;           // of exp(l - maximum)
  float target_logit;  // -infinity if the target is in another shard
};
// `target`: its column, or -1 if it is in another shard.
RowStatistics row_statistics(float* logits, int64_t valid, int64_t target, float softcap);

// Whether no logit exceeds the target's.
bool is_greatest(const float* logits, int64_t valid, int32_t target);

// As cross_entropy_row; also writes the row's gradient (softmax - onehot(target)) * scale (times the cap's
// slope) in f32, bf16 or fp16: `vocab` elements, zero beyond `valid` and in a row without target. An f32
// gradient is written in place (gradient == logits), a narrower one elsewhere.
double cross_entropy_gradient_row(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                                  int32_t target, float scale, float softcap);

// Gradients of the summed loss with respect to a row's statistics.
struct StatisticsGradient {
  float maximum = 0;     // as row_statistics returned it
  float of_sum = 0;      // of the sum
  float of_target = 0;   // of the target's logit (not read if the target is in another shard)
  float of_maximum = 0;  // of the maximum at constant sum; 0 for the loss, which does not depend on it
};
// As cross_entropy_gradient_row, and equal to it bit for bit if the statistics cover all logits.
void statistics_gradient_row(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                             int64_t target, const StatisticsGradient& given, float softcap);

// row = softcap · tanh(row / softcap) for n elements.
void cap_row(float* row, int64_t n, float softcap);

// Sums the losses of tokens and counts their targets in token order: chunks, threads and the form of the loss
// do not change the sum.
struct LossSums {
  double* sum;
  int64_t* count;
  float* of_tokens;  // the losses as fp32; may be null
};
void sum_losses(int64_t tokens, const double* losses, const int32_t* targets, bool accumulate,
                const LossSums& to);

}  // namespace strata::cpu::detail
