// Optimizer steps on fp32 arrays: the gradient norm, and AdamW, ADOPT and Lion in one pass over memory.
// adamw8bit.h, adafactor.h and muon.h have the others.
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "kernels/cpu/gemm.h"
#include "tensor/dtype.h"
#include "tensor/update_scalars.h"

namespace strata::cpu {

// Elements per partial sum of squares, so that a norm over many tensors has one fixed order.
inline constexpr int64_t kNormBlock = 65536;
constexpr int64_t norm_partials(int64_t n) {
  return (n + kNormBlock - 1) / kNormBlock;
}

// partials[norm_partials(n)]: sums of squares of consecutive blocks of x, in f64.
void sum_of_squares_partials(const float* x, int64_t n, double* partials);
// The same partials, and of each block the sum over its words i, modulo 2^64, of bits · (2i + 1).
void squares_and_digests(const float* x, int64_t n, double* partials, uint64_t* digests);
// squares[r]: the sum of squares of row r of x, [rows, columns], in f64.
void row_squares(const float* x, int64_t rows, int64_t columns, double* squares);
// out[r] = x[r] · factor(r), which may overwrite x; a row with the factor 1 is copied.
void scale_rows(const float* x, int64_t rows, int64_t columns, FunctionRef<float(int64_t)> factor,
                float* out);
// *out = partials[0] + … + partials[n - 1], in that order.
void reduce_sum(const double* partials, int64_t n, double* out);

// Read from memory when the update runs.
using strata::UpdateScalars;

struct AdamWConstants {
  double beta1 = 0.9, beta2 = 0.95;  // f64: 1 - beta is rounded to f32 once, as PyTorch does
  float eps = 1e-8f;
  float weight_decay = 0, lr_scale = 1;
};

// PyTorch's AdamW with g = grad * grad_scale, rate = lr * lr_scale and t updates:
//   p -= rate * weight_decay * p;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g²
//   p -= rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
struct AdamWArrays {
  float *master, *m, *v;
  const float* grad;
};
void adamw_update(int64_t n, const AdamWArrays& arrays, const UpdateScalars* scalars,
                  const AdamWConstants& constants);

// Like adamw_update(), for a whole matrix; also writes its packed layouts while its rows are in the cache,
// bit for bit the result of packing afterwards. The layouts must hold the previous matrix or be cleared
// (weight_encoding.h). places: the memory of each layout, for bf16 GEMMs.
void adamw_update_encoded(int64_t rows, int64_t columns, const AdamWArrays& arrays,
                          const UpdateScalars* scalars, const AdamWConstants& constants,
                          std::span<const WeightEncoding> encodings, std::byte* const* places);

// ADOPT (Taniguchi et al. 2024); g, rate and t as above:
//   t = 1:  v = g²
//   else:   p -= rate * weight_decay * p;  m += (1 - beta1) (clip(g / max(sqrt(v), eps), ±(t - 1)^¼) - m)
//           p -= rate * m;  v = beta2 v + (1 - beta2) g²
void adopt_update(int64_t n, const AdamWArrays& arrays, const UpdateScalars* scalars,
                  const AdamWConstants& constants);

// Lion (Chen et al. 2023, algorithm 2); g and rate as above:
//   p -= rate * weight_decay * p;  p -= rate * sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
struct LionConstants {
  double beta1 = 0.9, beta2 = 0.99;
  float weight_decay = 0, lr_scale = 1;
};
void lion_update(int64_t n, float* master, float* m, const float* grad, const UpdateScalars* scalars,
                 const LionConstants& constants);

// The same three updates of a range of elements on the calling thread: `use` gets a function that updates
// elements in place (`v` is nullptr for Lion), which it may call many times and from several threads. It is not
// called if the step is skipped.
using UpdateRange = FunctionRef<void(const AdamWArrays& arrays, int64_t n)>;
using UseUpdate = FunctionRef<void(UpdateRange)>;
void with_adamw(const UpdateScalars& scalars, const AdamWConstants& constants, UseUpdate use);
void with_adopt(const UpdateScalars& scalars, const AdamWConstants& constants, UseUpdate use);
void with_lion(const UpdateScalars& scalars, const LionConstants& constants, UseUpdate use);

// bias[i] += rate · sign(mean of the loads − loads[i]).
void router_bias_update(int64_t experts, float* bias, const int64_t* loads, const UpdateScalars* scalars,
                        double rate);

}  // namespace strata::cpu
