// RMS normalisation of queries and keys inside [N, q | k | v], before they are rotated: of each head by one
// shared weight (Qwen3, Gemma 3), or of the whole projection (OLMo 2), which is one wide group. v passes
// unchanged. Arithmetic is f32; x, y, dy and dx have shape.dtype, all else is f32. Same bits for any number
// of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct QkNormShape {
  int64_t rows = 0;
  int64_t q_groups = 0, q_width = 0;  // q is q_groups · q_width elements at the start of a row
  int64_t k_groups = 0, k_width = 0;  // k follows it
  int64_t row_stride = 0;             // elements of a row, v included
  float eps = 1e-6f;
  float weight_offset = 0.0f;  // a weight counts as weight + this
  DType dtype = DType::kF32;

  int64_t groups() const { return q_groups + k_groups; }
};

// y = x with every group of q and k normalised; rstd is [rows, q_groups + k_groups]. y may alias x. `means`
// [rows, 2], where others have the rest of q and of k, each of which is one group: the mean squares of all.
void qk_norm_forward(const QkNormShape& shape, void* y, float* rstd, const void* x, const float* q_weight,
                     const float* k_weight, const float* means = nullptr);
// dx from dy; x is what was normalised. dx may alias dy or x. `means`: of x · dy · weight, in the same way.
void qk_norm_backward_input(const QkNormShape& shape, void* dx, const void* dy, const void* x,
                            const float* rstd, const float* q_weight, const float* k_weight,
                            const float* means = nullptr);
// What these elements add to `means`, of q and k that are q_whole and k_whole elements wide: of x², or with
// dy of x · dy · weight.
void qk_norm_means(const QkNormShape& shape, int64_t q_whole, int64_t k_whole, float* means, const void* x,
                   const void* dy, const float* q_weight, const float* k_weight);
// dq_weight[q_width] and dk_weight[k_width] = (accumulate ? itself : 0) + sums over rows and groups. Scratch
// is uninitialised memory of that many bytes.
int64_t qk_norm_weight_scratch_bytes(const QkNormShape& shape);
void qk_norm_backward_weight(const QkNormShape& shape, float* dq_weight, float* dk_weight, const void* dy,
                             const void* x, const float* rstd, bool accumulate_q, bool accumulate_k,
                             void* scratch);

}  // namespace strata::cpu
