// RMS normalisation of queries and keys in [N, q | k | v], before rotation: of each head with one shared
// weight (Qwen3, Gemma 3), or of the whole projection (OLMo 2), which is a single wide group. v is copied.
// Arithmetic is fp32; x, y, dy and dx have shape.dtype, all else is fp32. Results are bit-identical for any
// number of threads.
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
  float weight_offset = 0.0f;  // added to each weight
  DType dtype = DType::kF32;

  int64_t groups() const { return q_groups + k_groups; }
};

// y = x with every group of q and k normalised; rstd is [rows, q_groups + k_groups]. y may alias x. `means`
// [rows, 2]: the mean squares over all ranks, if other ranks have the rest of q and k (each a single group).
void qk_norm_forward(const QkNormShape& shape, void* y, float* rstd, const void* x, const float* q_weight,
                     const float* k_weight, const float* means = nullptr);
// dx from dy; x is the input of the forward call. dx may alias dy or x. `means`: of x · dy · weight,
// likewise.
void qk_norm_backward_input(const QkNormShape& shape, void* dx, const void* dy, const void* x,
                            const float* rstd, const float* q_weight, const float* k_weight,
                            const float* means = nullptr);
// This rank's contribution to `means`, where all of q and k are q_whole and k_whole elements wide: of x², or,
// if dy is given, of x · dy · weight.
void qk_norm_means(const QkNormShape& shape, int64_t q_whole, int64_t k_whole, float* means, const void* x,
                   const void* dy, const float* q_weight, const float* k_weight);
// dq_weight[q_width] and dk_weight[k_width] = (accumulate ? itself : 0) + sums over rows and groups. scratch:
// qk_norm_weight_scratch_bytes of uninitialised memory.
int64_t qk_norm_weight_scratch_bytes(const QkNormShape& shape);
void qk_norm_backward_weight(const QkNormShape& shape, float* dq_weight, float* dk_weight, const void* dy,
                             const void* x, const float* rstd, bool accumulate_q, bool accumulate_k,
                             void* scratch);

}  // namespace strata::cpu
