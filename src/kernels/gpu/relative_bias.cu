// The bias of attention by distance and its gradient (src/ops/relative_bias), and the ends of documents among an encoder's
// tokens (src/ops/cross_attention).
#include "kernels/gpu/args_attention.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

// The length of column i's distance in the direction; -1 if it is in the other.
__device__ __forceinline__ int length_of(const RelativeBiasArgs& args, int i) {
  const int distance = args.first + i;
  if (args.of == DistancesOf::kAfter) return distance > 0 ? distance : -1;
  if (distance <= 0) return -distance;
  return args.of == DistancesOf::kAll ? 0 : -1;
}

// A thread per column; blockIdx.y is the head.
__device__ __forceinline__ void bias_of_distances(const RelativeBiasArgs& args) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), head = static_cast<int>(blockIdx.y);
  if (i >= args.width) return;
  const int length = length_of(args, i);
  if (length < args.starts[0] || length >= args.starts[args.count]) return;
  // The last bucket that begins at or before it.
  int low = 0, high = args.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (args.starts[middle] <= length) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  args.bias[static_cast<int64_t>(head) * args.width + i] =
      args.table[static_cast<int64_t>(low) * args.heads + head];
}

// A warp per bucket (blockIdx.x) and head.
__device__ __forceinline__ void gradient_of_bucket(const RelativeBiasArgs& args) {
  __shared__ float shared[kMostWarps];
  const int bucket = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const float* const dbias = args.dbias + static_cast<int64_t>(head) * args.width;
  float sum[1] = {};
  for (int i = static_cast<int>(threadIdx.x); i < args.width; i += kWarp) {
    const int length = length_of(args, i);
    if (length >= args.starts[bucket] && length < args.starts[bucket + 1]) sum[0] += dbias[i];
  }
  reduce_block<Sum>(sum, shared);
  if (threadIdx.x != 0) return;
  float* const to = args.dtable + static_cast<int64_t>(bucket) * args.heads + head;
  *to = args.accumulate != 0 ? *to + sum[0] : sum[0];
}

// A thread per row: the last key whose document begins at or before the row's.
__device__ __forceinline__ void end_of_document(const DocumentEndsArgs& args) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= args.rows) return;
  const int32_t* const begins = args.k_begin + static_cast<int64_t>(row / args.length) * args.kv_length;
  const int32_t begin = args.q_begin[row];
  int low = 0, high = args.kv_length;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (begins[middle] <= begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  args.ends[row] = low > 0 && begins[low - 1] == begin ? low : 0;
}

extern "C" __global__ void __launch_bounds__(128)
    relative_bias(const __grid_constant__ RelativeBiasArgs args) {
  bias_of_distances(args);
}
extern "C" __global__ void __launch_bounds__(32)
    relative_bias_backward(const __grid_constant__ RelativeBiasArgs args) {
  gradient_of_bucket(args);
}
extern "C" __global__ void __launch_bounds__(128)
    document_ends(const __grid_constant__ DocumentEndsArgs args) {
  end_of_document(args);
}

}  // namespace strata::gpu
