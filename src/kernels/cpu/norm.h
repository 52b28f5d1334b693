// RMS and layer normalisation over the last axis of [rows, dim], with the residual addition that precedes
// them. Arithmetic is f32; x, residual, y, h, dy, dx, dh have shape.dtype (f32, bf16, fp16), else f32. The
// bits do not depend on the number of threads. Scratch is uninitialised memory of …_scratch_bytes(shape).
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct NormShape {
  int64_t rows = 0, dim = 0;
  float eps = 1e-5f;
  DType dtype = DType::kF32;
  float weight_offset = 0.0f;  // RMS: the weight used is weight + weight_offset (Gemma: 1)
};

// h = x + residual (rounded to dtype; without a residual h is x itself, and `h` is not written),
// rstd = 1 / sqrt(mean(h²) + eps), y = h * rstd * (weight + weight_offset). rstd is [rows]; the gradient
// needs h and rstd. h may alias x or residual; y may alias x.
void rms_norm_forward(const NormShape& shape, void* y, void* h, float* rstd, const void* x,
                      const void* residual, const float* weight);

// dx = gradient with respect to h: from dy through y, plus dh (null: 0), the gradient from h's other readers;
// added in f32 and rounded once. dx may alias dh or dy. It is the gradient of both x and residual.
void rms_norm_backward_input(const NormShape& shape, void* dx, const void* dy, const void* h,
                             const float* rstd, const float* weight, const void* dh);

// dw[dim] = (accumulate ? dw : 0) + sum over rows of dy * h * rstd.
int64_t rms_norm_weight_scratch_bytes(const NormShape& shape);
void rms_norm_backward_weight(const NormShape& shape, float* dw, const void* dy, const void* h,
                              const float* rstd, bool accumulate, void* scratch);

// Like rms_norm_*, with y = (h - mean) * rstd * weight + bias (bias null: 0), rstd = 1 / sqrt(variance(h) +
// eps).
void layer_norm_forward(const NormShape& shape, void* y, void* h, float* mean, float* rstd, const void* x,
                        const void* residual, const float* weight, const float* bias);
void layer_norm_backward_input(const NormShape& shape, void* dx, const void* dy, const void* h,
                               const float* mean, const float* rstd, const float* weight, const void* dh);
// db[dim] likewise gets the sum of dy; null: no bias.
int64_t layer_norm_weight_scratch_bytes(const NormShape& shape);
void layer_norm_backward_weight(const NormShape& shape, float* dw, float* db, const void* dy, const void* h,
                                const float* mean, const float* rstd, bool accumulate, void* scratch);

}  // namespace strata::cpu
