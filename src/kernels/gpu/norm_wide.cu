// RMS and layer norm of rows that norm.cu does not take, being too wide for the registers of a block or not of whole
// vectors of 16 bytes: each pass reads the row again, by single elements. One block per row; for the gradients of weights
// a thread per column and part.
#include "kernels/gpu/args.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

// body(column) for this thread's columns of a row.
template <typename Body>
__device__ __forceinline__ void for_columns(int dim, const Body& body) {
  for (int c = static_cast<int>(threadIdx.x); c < dim; c += static_cast<int>(blockDim.x)) body(c);
}

template <typename T, bool kRms>
__device__ __forceinline__ void wide_forward(const NormArgs& args) {
  __shared__ float shared[2][kMostWarps];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.dim;
  const T* h = static_cast<const T*>(args.x) + row;
  if (args.residual != nullptr) {
    T* const to = static_cast<T*>(args.h) + row;
    const T* const residual = static_cast<const T*>(args.residual) + row;
    for_columns(args.dim, [&](int c) { to[c] = from_float<T>(to_float(h[c]) + to_float(residual[c])); });
    h = to;  // each thread reads its elements
  }
  const float inverse = 1.0f / static_cast<float>(args.dim);
  float mean = 0.0f;
  if constexpr (!kRms) {
    float sum[1] = {};
    for_columns(args.dim, [&](int c) { sum[0] += to_float(h[c]); });
    reduce_block<Sum>(sum, shared[0]);
    mean = sum[0] * inverse;
  }
  float squares[1] = {};
  for_columns(args.dim, [&](int c) {
    const float x = to_float(h[c]) - mean;
    squares[0] = fmaf(x, x, squares[0]);
  });
  reduce_block<Sum>(squares, shared[1]);
  const float rstd = 1.0f / sqrtf(fmaf(squares[0], inverse, args.eps));
  if (threadIdx.x == 0) {
    args.rstd[blockIdx.x] = rstd;
    if constexpr (!kRms) args.mean[blockIdx.x] = mean;
  }
  T* const y = static_cast<T*>(args.y) + row;
  for_columns(args.dim, [&](int c) {
    float value = (to_float(h[c]) - mean) * rstd * (args.weight[c] + args.weight_offset);
    if (!kRms && args.bias != nullptr) value += args.bias[c];
    y[c] = from_float<T>(value);
  });
}

template <typename T, bool kRms>
__device__ __forceinline__ void wide_input(const NormGradArgs& args) {
  __shared__ float shared[2 * kMostWarps];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.dim;
  const T *const dy = static_cast<const T*>(args.dy) + row, *const h = static_cast<const T*>(args.h) + row;
  const float rstd = args.rstd[blockIdx.x], mean = kRms ? 0.0f : args.mean[blockIdx.x];
  const auto slope_of = [&](int c) { return to_float(dy[c]) * (args.weight[c] + args.weight_offset); };
  float sums[2] = {};  // of the slopes times normed elements, of the slopes
  for_columns(args.dim, [&](int c) {
    const float slope = slope_of(c);
    sums[0] = fmaf(slope, (to_float(h[c]) - mean) * rstd, sums[0]);
    if constexpr (!kRms) sums[1] += slope;
  });
  reduce_block<Sum>(sums, shared);
  const float inverse = 1.0f / static_cast<float>(args.dim), along = sums[0] * inverse,
              shift = sums[1] * inverse;
  T* const dx = static_cast<T*>(args.dx) + row;
  const T* const dh = args.dh != nullptr ? static_cast<const T*>(args.dh) + row : nullptr;
  for_columns(args.dim, [&](int c) {
    float value = rstd * (slope_of(c) - shift - (to_float(h[c]) - mean) * rstd * along);
    if (dh != nullptr) value += to_float(dh[c]);
    dx[c] = from_float<T>(value);
  });
}

// parts[gridDim.y][dw | db]: part blockIdx.y takes every gridDim.y-th row.
template <typename T, bool kRms>
__device__ __forceinline__ void wide_weight(const NormGradArgs& args) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= args.dim) return;
  float dw = 0.0f, db = 0.0f;
  for (int row = static_cast<int>(blockIdx.y); row < args.rows; row += static_cast<int>(gridDim.y)) {
    const int64_t at = static_cast<int64_t>(row) * args.dim + c;
    const float dy = to_float(static_cast<const T*>(args.dy)[at]), mean = kRms ? 0.0f : args.mean[row];
    dw = fmaf(dy, (to_float(static_cast<const T*>(args.h)[at]) - mean) * args.rstd[row], dw);
    if constexpr (!kRms) db += dy;
  }
  float* const parts = args.parts + static_cast<int64_t>(blockIdx.y) * (kRms ? 1 : 2) * args.dim;
  parts[c] = dw;
  if constexpr (!kRms) parts[args.dim + c] = db;
}

#define STRATA_WIDE(NAME, RMS, TYPE, T)                                               \
  extern "C" __global__ void __launch_bounds__(512)                                   \
      NAME##_wide_forward_##TYPE(const __grid_constant__ NormArgs args) {             \
    wide_forward<T, RMS>(args);                                                       \
  }                                                                                   \
  extern "C" __global__ void __launch_bounds__(512)                                   \
      NAME##_wide_backward_input_##TYPE(const __grid_constant__ NormGradArgs args) {  \
    wide_input<T, RMS>(args);                                                         \
  }                                                                                   \
  extern "C" __global__ void __launch_bounds__(512)                                   \
      NAME##_wide_backward_weight_##TYPE(const __grid_constant__ NormGradArgs args) { \
    wide_weight<T, RMS>(args);                                                        \
  }
STRATA_WIDE(rms_norm, true, bf16, BF16)
STRATA_WIDE(rms_norm, true, f32, float)
STRATA_WIDE(layer_norm, false, bf16, BF16)
STRATA_WIDE(layer_norm, false, f32, float)

}  // namespace strata::gpu
