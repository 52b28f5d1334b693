// The keys that attention rows see, computed once for all layers of a batch: one block per 64 rows.
#include "kernels/gpu/args.h"
#include "kernels/gpu/intrinsics.cuh"

namespace strata::gpu {

// Minimum or maximum of the values of a block's threads, which all take part.
template <bool kLeast>
__device__ __forceinline__ int extreme(int value, int* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < half) {
      const int other = shared[thread + half];
      shared[thread] = kLeast ? min(shared[thread], other) : max(shared[thread], other);
    }
    __syncthreads();
  }
  const int result = shared[0];
  __syncthreads();
  return result;
}

}  // namespace strata::gpu

extern "C" __global__ void __launch_bounds__(64)
    attention_ranges(const __grid_constant__ strata::gpu::AttentionRangesArgs args) {
  __shared__ int shared[64];
  const int sequence = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
  const bool inside = row < args.length;
  const int64_t at = static_cast<int64_t>(sequence) * args.length + row;
  int begin = 0, end = args.kv_length;
  if (inside) {
    if (args.kv_begin != nullptr) begin = max(begin, args.kv_begin[at]);
    if (args.sequence_end != nullptr) end = min(end, args.sequence_end[sequence]);
    if (args.kv_end != nullptr) end = min(end, args.kv_end[at]);
    if (args.causal != 0) {
      const int place = row / args.repeat + (args.position != nullptr ? args.position[sequence] : 0);
      end = min(end, place + 1);
      if (args.window > 0)
        begin = max(begin, args.chunked != 0 ? place / args.window * args.window : place - args.window + 1);
    }
    if (begin >= end) begin = end = 0;
    *reinterpret_cast<int2*>(args.rows + at * 2) = make_int2(begin, end);
  }
  // Rows beyond the sequence add no constraint; with a row that sees no key, no key is seen by all rows.
  const bool sees = inside && begin < end;
  const int first = strata::gpu::extreme<true>(sees ? begin : args.kv_length, shared);
  const int last = strata::gpu::extreme<false>(sees ? end : 0, shared);
  const int full_first = strata::gpu::extreme<false>(inside ? (sees ? begin : args.kv_length) : 0, shared);
  const int full_last = strata::gpu::extreme<true>(inside ? end : args.kv_length, shared);
  if (threadIdx.x == 0)
    *reinterpret_cast<int4*>(args.tiles + (static_cast<int64_t>(sequence) * gridDim.x + blockIdx.x) * 4) =
        make_int4(first, last, full_first, full_last);
}
