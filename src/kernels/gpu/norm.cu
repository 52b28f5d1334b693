// RMS and layer norm of rows of whole vectors of 16 bytes, one block per row, whose elements stay in registers;
// norm_wide.cu has other rows. For the gradients of weights a block adds up every gridDim-th row; column_parts adds the
// sums of all blocks.
#include "kernels/gpu/args.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

template <typename T, bool kRms, int kCount>
__device__ __forceinline__ void norm_forward(const NormArgs& args) {
  __shared__ float shared[2][kMostWarps];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.dim;
  const int dim = args.dim;
  float h[kHeld];
  load_row<kCount>(static_cast<const T*>(args.x) + row, dim, h);
  if (args.residual != nullptr) {
    T* const to = static_cast<T*>(args.h) + row;
    for_vectors<kCount>(dim, [&](int at, int column) {
      float vec[kCount];
      load(static_cast<const T*>(args.residual) + row + column, vec);
#pragma unroll
      // As stored, so that backward reads the same values.
      for (int i = 0; i < kCount; ++i) vec[i] = h[at + i] = to_float(from_float<T>(h[at + i] + vec[i]));
      store(to + column, vec);
    });
  }
  const float inverse = 1.0f / static_cast<float>(dim);
  float mean = 0.0f;
  if constexpr (!kRms) {
    float sum[1] = {};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum[0] += h[i];
    reduce_block<Sum>(sum, shared[0]);
    mean = sum[0] * inverse;
  }
  float squares[1] = {};
  for_vectors<kCount>(dim, [&](int at, int) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) squares[0] = fmaf(h[at + i] - mean, h[at + i] - mean, squares[0]);
  });
  reduce_block<Sum>(squares, shared[1]);
  const float rstd = 1.0f / sqrtf(fmaf(squares[0], inverse, args.eps));
  if (threadIdx.x == 0) {
    args.rstd[blockIdx.x] = rstd;
    if constexpr (!kRms) args.mean[blockIdx.x] = mean;
  }
  for_vectors<kCount>(dim, [&](int at, int column) {
    float weight[kCount], y[kCount];
    load(args.weight + column, weight);
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = (h[at + i] - mean) * rstd * (weight[i] + args.weight_offset);
    if (!kRms && args.bias != nullptr) {
      float bias[kCount];
      load(args.bias + column, bias);
#pragma unroll
      for (int i = 0; i < kCount; ++i) y[i] += bias[i];
    }
    store(static_cast<T*>(args.y) + row + column, y);
  });
}

// A block takes every gridDim-th row.
template <typename T, bool kRms, int kCount>
__device__ __forceinline__ void norm_backward_input(const NormGradArgs& args) {
  __shared__ float shared[2][2 * kMostWarps];
  const int dim = args.dim;
  const float inverse = 1.0f / static_cast<float>(dim);
  int turn = 0;
  for (int r = static_cast<int>(blockIdx.x); r < args.rows; r += static_cast<int>(gridDim.x)) {
    const int64_t row = static_cast<int64_t>(r) * dim;
    const float rstd = args.rstd[r], mean = kRms ? 0.0f : args.mean[r];
    float g[kHeld], normed[kHeld];
    load_row<kCount>(static_cast<const T*>(args.dy) + row, dim, g);
    load_row<kCount>(static_cast<const T*>(args.h) + row, dim, normed);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) normed[i] = (normed[i] - mean) * rstd;
    float sums[kRms ? 1 : 2] = {};  // of g · normed, of g
    for_vectors<kCount>(dim, [&](int at, int column) {
      float weight[kCount];
      load(args.weight + column, weight);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        g[at + i] *= weight[i] + args.weight_offset;
        sums[0] = fmaf(g[at + i], normed[at + i], sums[0]);
        if constexpr (!kRms) sums[1] += g[at + i];
      }
    });
    reduce_block<Sum>(sums, shared[turn]);
    turn ^= 1;
    const float slope = sums[0] * inverse, shift = kRms ? 0.0f : sums[kRms ? 0 : 1] * inverse;
    for_vectors<kCount>(dim, [&](int at, int column) {
      float dx[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) dx[i] = rstd * (g[at + i] - shift - normed[at + i] * slope);
      if (args.dh != nullptr) {
        float more[kCount];
        load(static_cast<const T*>(args.dh) + row + column, more);
#pragma unroll
        for (int i = 0; i < kCount; ++i) dx[i] += more[i];
      }
      store(static_cast<T*>(args.dx) + row + column, dx);
    });
  }
}

// Holds sums instead of a row, whose vectors pass one by one.
template <typename T, bool kRms, int kCount>
__device__ __forceinline__ void norm_backward_weight(const NormGradArgs& args) {
  const int dim = args.dim;
  float dw[kHeld] = {}, db[kRms ? 1 : kHeld] = {};
  for (int r = static_cast<int>(blockIdx.x); r < args.rows; r += static_cast<int>(gridDim.x)) {
    const int64_t row = static_cast<int64_t>(r) * dim;
    const float rstd = args.rstd[r], mean = kRms ? 0.0f : args.mean[r];
    for_vectors<kCount>(dim, [&](int at, int column) {
      float g[kCount], h[kCount];
      load(static_cast<const T*>(args.dy) + row + column, g);
      load(static_cast<const T*>(args.h) + row + column, h);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        dw[at + i] = fmaf(g[i], (h[i] - mean) * rstd, dw[at + i]);
        if constexpr (!kRms) db[at + i] += g[i];
      }
    });
  }
  float* const parts = args.parts + static_cast<int64_t>(blockIdx.x) * (kRms ? 1 : 2) * dim;
  for_vectors<kCount>(dim, [&](int at, int column) {
    float vec[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) vec[i] = dw[at + i];
    store(parts + column, vec);
    if constexpr (!kRms) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) vec[i] = db[at + i];
      store(parts + dim + column, vec);
    }
  });
}

#define STRATA_NORM(NAME, RMS, TYPE, T, COUNT)                                   \
  extern "C" __global__ void __launch_bounds__(512)                              \
      NAME##_forward_##TYPE(const __grid_constant__ NormArgs args) {             \
    norm_forward<T, RMS, COUNT>(args);                                           \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(512)                              \
      NAME##_backward_input_##TYPE(const __grid_constant__ NormGradArgs args) {  \
    norm_backward_input<T, RMS, COUNT>(args);                                    \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(512)                              \
      NAME##_backward_weight_##TYPE(const __grid_constant__ NormGradArgs args) { \
    norm_backward_weight<T, RMS, COUNT>(args);                                   \
  }
STRATA_NORM(rms_norm, true, bf16, BF16, 8)
STRATA_NORM(rms_norm, true, f32, float, 4)
STRATA_NORM(layer_norm, false, bf16, BF16, 8)
STRATA_NORM(layer_norm, false, f32, float, 4)

}  // namespace strata::gpu
