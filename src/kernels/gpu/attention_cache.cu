// New keys and values into the caches of attention: one block row per token.
#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

// kCount elements of the keys, then of the values.
template <typename T, int kCount>
__device__ __forceinline__ void store_cache_row(const CacheRowsArgs& args) {
  const int row = static_cast<int>(blockIdx.x), sequence = row / args.length, i = row % args.length;
  const int64_t entry = args.entries[sequence],
                place = (args.position != nullptr ? args.position[sequence] : 0) + i;
  if (place >= args.capacity) return;
  int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  const bool is_key = column < args.key_width;
  if (!is_key) column -= args.key_width;
  const int width = is_key ? args.key_width : args.value_width;
  if (column >= width) return;
  const T* const from = static_cast<const T*>(is_key ? args.keys : args.values) + row * args.stride;
  T* const to =
      static_cast<T*>(is_key ? args.key_cache : args.value_cache) + (entry * args.capacity + place) * width;
  float x[kCount];
  load(from + column, x);
  store(to + column, x);
}

extern "C" __global__ void store_cache_rows_bf16(const __grid_constant__ CacheRowsArgs args) {
  store_cache_row<BF16, 8>(args);
}
extern "C" __global__ void store_cache_rows_f32(const __grid_constant__ CacheRowsArgs args) {
  store_cache_row<float, 4>(args);
}
extern "C" __global__ void store_cache_rows_bf16_any(const __grid_constant__ CacheRowsArgs args) {
  store_cache_row<BF16, 1>(args);
}
extern "C" __global__ void store_cache_rows_f32_any(const __grid_constant__ CacheRowsArgs args) {
  store_cache_row<float, 1>(args);
}

}  // namespace strata::gpu
