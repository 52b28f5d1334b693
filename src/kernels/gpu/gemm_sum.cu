// Adds the partial results of a GEMM with a split depth.
#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

template <typename Out>
__device__ __forceinline__ void gemm_sum(const GemmSumArgs& args) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (column >= args.n) return;
  const int count = min(4, args.n - column);
  const int64_t part = static_cast<int64_t>(args.m) * args.n;
  for (int row = static_cast<int>(blockIdx.y); row < args.m; row += static_cast<int>(gridDim.y)) {
    const float* from = args.parts + static_cast<int64_t>(row) * args.n + column;
    Out* to = static_cast<Out*>(args.c) + row * args.c_stride + column;
    float sum[4] = {};
    if (count == 4 && args.n % 4 == 0 && aligned_to(static_cast<Out*>(args.c), args.c_stride, 4)) {
      for (int i = 0; i < args.splits; ++i) {
        float four[4];
        load(from + i * part, four);
        for (int c = 0; c < 4; ++c) sum[c] += four[c];
      }
      float old[4] = {};
      if (args.accumulate != 0) load(to, old);
      for (int c = 0; c < 4; ++c) sum[c] += (args.bias != nullptr ? args.bias[column + c] : 0.0f) + old[c];
      store(to, sum);
    } else {
      for (int c = 0; c < count; ++c) {
        for (int i = 0; i < args.splits; ++i) sum[c] += from[i * part + c];
        sum[c] += (args.bias != nullptr ? args.bias[column + c] : 0.0f) +
                  (args.accumulate != 0 ? to_float(to[c]) : 0.0f);
        to[c] = from_float<Out>(sum[c]);
      }
    }
  }
}

}  // namespace strata::gpu

extern "C" __global__ void gemm_sum_f32(const __grid_constant__ strata::gpu::GemmSumArgs args) {
  strata::gpu::gemm_sum<float>(args);
}
extern "C" __global__ void gemm_sum_bf16(const __grid_constant__ strata::gpu::GemmSumArgs args) {
  strata::gpu::gemm_sum<strata::gpu::BF16>(args);
}
