// RMS norm of the groups of q and k in rows [q | k | v], a warp per group (src/ops/qk_norm). Loops read a group twice:
// it is in the cache then, and may be a head or the whole of q.
#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"
#include "kernels/gpu/warp.cuh"

namespace strata::gpu {

// A group of a row: where it begins, its width, and its weights.
struct QkGroup {
  int begin, width;
  const float* weight;
};
__device__ __forceinline__ QkGroup qk_group(const QkNormArgs& args, int group) {
  const bool q = group < args.q_groups;
  return {q ? group * args.q_width : args.q_groups * args.q_width + (group - args.q_groups) * args.k_width,
          q ? args.q_width : args.k_width, q ? args.q_weight : args.k_weight};
}

// Elements of a row after q and k, which pass.
template <int kCount, typename T>
__device__ __forceinline__ void pass_values(const QkNormArgs& args, const T* from, T* to) {
  if (from == to) return;
  const int first = args.q_groups * args.q_width + args.k_groups * args.k_width;
  for (int c = first + static_cast<int>(threadIdx.x) * kCount; c < args.width;
       c += static_cast<int>(blockDim.x) * kCount) {
    float x[kCount];
    load(from + c, x);
    store(to + c, x);
  }
}

// One block per row.
template <typename T, int kCount>
__device__ __forceinline__ void qk_norm_forward(const QkNormArgs& args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.width;
  const T* const x = static_cast<const T*>(args.x) + row;
  T* const y = static_cast<T*>(args.out) + row;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, groups = args.q_groups + args.k_groups;
  for (int g = static_cast<int>(threadIdx.x) / kWarp; g < groups; g += static_cast<int>(blockDim.x) / kWarp) {
    const QkGroup group = qk_group(args, g);
    float squares = 0.0f;
    for (int c = lane * kCount; c < group.width; c += kWarp * kCount) {
      float vec[kCount];
      load(x + group.begin + c, vec);
#pragma unroll
      for (int i = 0; i < kCount; ++i) squares = fmaf(vec[i], vec[i], squares);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(group.width) + args.eps);
    if (lane == 0) args.rstd[static_cast<int64_t>(blockIdx.x) * groups + g] = rstd;
    for (int c = lane * kCount; c < group.width; c += kWarp * kCount) {
      float vec[kCount], weight[kCount];
      load(x + group.begin + c, vec);
      load(group.weight + c, weight);
#pragma unroll
      for (int i = 0; i < kCount; ++i) vec[i] *= rstd * (weight[i] + args.weight_offset);
      store(y + group.begin + c, vec);
    }
  }
  pass_values<kCount>(args, x, y);
}

// One block per row; dx may replace dy.
template <typename T, int kCount>
__device__ __forceinline__ void qk_norm_backward_input(const QkNormArgs& args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.width;
  const T *const x = static_cast<const T*>(args.x) + row, *const dy = static_cast<const T*>(args.dy) + row;
  T* const dx = static_cast<T*>(args.out) + row;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, groups = args.q_groups + args.k_groups;
  for (int g = static_cast<int>(threadIdx.x) / kWarp; g < groups; g += static_cast<int>(blockDim.x) / kWarp) {
    const QkGroup group = qk_group(args, g);
    const float rstd = args.rstd[static_cast<int64_t>(blockIdx.x) * groups + g];
    float slope = 0.0f;
    for (int c = lane * kCount; c < group.width; c += kWarp * kCount) {
      float vec[kCount], grad[kCount], weight[kCount];
      load(x + group.begin + c, vec);
      load(dy + group.begin + c, grad);
      load(group.weight + c, weight);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        slope = fmaf(grad[i] * (weight[i] + args.weight_offset), vec[i] * rstd, slope);
    }
    slope = warp_sum(slope) / static_cast<float>(group.width);
    for (int c = lane * kCount; c < group.width; c += kWarp * kCount) {
      float vec[kCount], grad[kCount], weight[kCount];
      load(x + group.begin + c, vec);
      load(dy + group.begin + c, grad);
      load(group.weight + c, weight);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        vec[i] = rstd * (grad[i] * (weight[i] + args.weight_offset) - vec[i] * rstd * slope);
      store(dx + group.begin + c, vec);
    }
  }
  pass_values<kCount>(args, dy, dx);
}

// parts[blocks · at_once][q_width + k_width]: sums over the rows of a block's part, of which it takes `at_once` at a time.
template <typename T, int kCount>
__device__ __forceinline__ void qk_norm_backward_weight(const QkNormArgs& args) {
  const int vectors = (args.q_width + args.k_width) / kCount, groups = args.q_groups + args.k_groups;
  const int part = static_cast<int>(threadIdx.x) / vectors;
  if (args.at_once > 1 && part >= args.at_once) return;
  const int first =
      args.at_once > 1 ? static_cast<int>(threadIdx.x) % vectors : static_cast<int>(threadIdx.x);
  const int64_t place = static_cast<int64_t>(blockIdx.x) * args.at_once + (args.at_once > 1 ? part : 0);
  const int64_t step = static_cast<int64_t>(gridDim.x) * args.at_once;
  for (int v = first; v < vectors; v += static_cast<int>(blockDim.x)) {
    const int column = v * kCount;
    const bool q = column < args.q_width;
    const int width = q ? args.q_width : args.k_width, count = q ? args.q_groups : args.k_groups;
    const int begin = q ? column : args.q_groups * args.q_width + column - args.q_width;
    float sum[kCount] = {};
    for (int64_t row = place; row < args.rows; row += step) {
      const float* const rstd = args.rstd + row * groups + (q ? 0 : args.q_groups);
#pragma unroll 1
      for (int g = 0; g < count; ++g) {
        const int64_t at = row * args.width + begin + g * width;
        float vec[kCount], grad[kCount];
        load(static_cast<const T*>(args.x) + at, vec);
        load(static_cast<const T*>(args.dy) + at, grad);
#pragma unroll
        for (int i = 0; i < kCount; ++i) sum[i] = fmaf(grad[i] * vec[i], rstd[g], sum[i]);
      }
    }
    store(args.parts + place * (args.q_width + args.k_width) + column, sum);
  }
}

#define STRATA_QK_NORM(ENDING, T, COUNT)                                         \
  extern "C" __global__ void __launch_bounds__(256)                              \
      qk_norm_forward##ENDING(const __grid_constant__ QkNormArgs args) {         \
    qk_norm_forward<T, COUNT>(args);                                             \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(256)                              \
      qk_norm_backward_input##ENDING(const __grid_constant__ QkNormArgs args) {  \
    qk_norm_backward_input<T, COUNT>(args);                                      \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(256)                              \
      qk_norm_backward_weight##ENDING(const __grid_constant__ QkNormArgs args) { \
    qk_norm_backward_weight<T, COUNT>(args);                                     \
  }
STRATA_QK_NORM(_bf16, BF16, 8)
STRATA_QK_NORM(_f32, float, 4)
STRATA_QK_NORM(_bf16_any, BF16, 1)
STRATA_QK_NORM(_f32_any, float, 1)

}  // namespace strata::gpu
