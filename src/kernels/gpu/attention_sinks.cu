// The gradient of attention sinks: one block per head.
#include "kernels/gpu/args.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

__device__ __forceinline__ void sink_gradient_of(const SinkGradArgs& args) {
  __shared__ float shared[kMostWarps];
  const int head = static_cast<int>(blockIdx.x);
  const float sink = args.sinks[head];
  float sum[1] = {};
  for (int sequence = 0; sequence < args.batch; ++sequence) {
    const int64_t first = (static_cast<int64_t>(sequence) * args.heads + head) * args.length;
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.x); row < args.length; row += static_cast<int>(blockDim.x))
      sum[0] -= exp_fast(sink - args.lse[first + row]) * args.delta[first + row];
  }
  reduce_block<Sum>(sum, shared);
  if (threadIdx.x == 0) args.dsinks[head] += sum[0];
}

extern "C" __global__ void __launch_bounds__(1024)
    attention_sink_gradient(const __grid_constant__ SinkGradArgs args) {
  sink_gradient_of(args);
}

}  // namespace strata::gpu
