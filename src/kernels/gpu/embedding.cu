// Embedding look-up, and its gradient in token order: one block sorts the ids of a run of 8,192 tokens with
// their positions; then one block adds up the rows of each id. Runs are processed one after another.
#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

// The row of an id in a table of parts of the vocabulary; -1: in none.
template <typename Args>
__device__ __forceinline__ int64_t row_of_id(const Args& args, int32_t id) {
  if (args.starts == nullptr) return id;
  for (int part = 0; part < args.parts; ++part) {
    const int64_t row = int64_t{id} - args.starts[part];
    if (row >= 0 && row < args.part_rows) return int64_t{part} * args.part_rows + row;
  }
  return -1;
}

template <typename T, int kCount>
__device__ __forceinline__ void embed(const EmbeddingArgs& args) {
  const int64_t row = blockIdx.x;
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  if (column >= args.dim) return;
  float x[kCount] = {};
  const int64_t of_table = row_of_id(args, args.ids[row]);
  if (of_table >= 0) load(args.table + of_table * args.dim + column, x);
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] *= args.scale;
  if (args.position_table != nullptr) {
    float more[kCount];
    load(args.position_table + static_cast<int64_t>(args.positions[row]) * args.dim + column, more);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += more[i];
  }
  store(static_cast<T*>(args.out) + row * args.dim + column, x);
}

// Sorts by id, then by position, so that an id's rows are added in order. Bitonic, in shared memory.
__device__ __forceinline__ void sort_ids(const EmbeddingSortArgs& args) {
  extern __shared__ uint64_t keys[];
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * args.run;
  const int count = static_cast<int>(min(static_cast<int64_t>(args.run), args.rows - first));
  for (int i = thread; i < args.run; i += threads) {
    // Positions beyond the tokens and ids without a gradient sort last.
    uint64_t key = ~uint64_t{0};
    if (i < count) {
      const int32_t id = args.ids[first + i];
      const int64_t row = id >= 0 && id != args.padding ? row_of_id(args, id) : -1;
      if (row >= 0) key = static_cast<uint64_t>(row) << 32 | static_cast<uint64_t>(i);
    }
    keys[i] = key;
  }
  for (int size = 2; size <= args.run; size *= 2) {
    for (int gap = size / 2; gap > 0; gap /= 2) {
      __syncthreads();
      for (int i = thread; i < args.run / 2; i += threads) {
        const int low = i / gap * gap * 2 + i % gap, high = low + gap;
        const uint64_t a = keys[low], b = keys[high];
        if ((a > b) == ((low & size) == 0)) keys[low] = b, keys[high] = a;
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < args.run; i += threads)
    args.sorted[static_cast<int64_t>(blockIdx.x) * args.run + i] = keys[i];
}

template <typename T, int kCount>
__device__ __forceinline__ void embedding_backward(const EmbeddingGradArgs& args) {
  const int at = static_cast<int>(blockIdx.x);
  const uint64_t* const sorted = args.sorted + static_cast<int64_t>(args.number) * args.run;
  const auto id_at = [&](int i) { return static_cast<uint32_t>(sorted[i] >> 32); };
  const uint32_t id = id_at(at);
  if (id == ~uint32_t{0} || (at > 0 && id_at(at - 1) == id)) return;
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  if (column >= args.dim) return;
  const T* const dy =
      static_cast<const T*>(args.dy) + static_cast<int64_t>(args.number) * args.run * args.dim + column;
  int end = at + 1;
  while (end < args.run && id_at(end) == id) ++end;
  float sum[kCount] = {};
#pragma unroll 4
  for (int i = at; i < end; ++i) {
    float vec[kCount];
    load(dy + static_cast<int64_t>(static_cast<uint32_t>(sorted[i])) * args.dim, vec);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum[k] += vec[k];
  }
  float* const to = args.table + static_cast<int64_t>(id) * args.dim + column;
  float old[kCount];
  load(to, old);
#pragma unroll
  for (int k = 0; k < kCount; ++k) old[k] = fmaf(sum[k], args.scale, old[k]);
  store(to, old);
}

extern "C" __global__ void embedding_bf16(const __grid_constant__ EmbeddingArgs args) {
  embed<BF16, 8>(args);
}
extern "C" __global__ void embedding_f32(const __grid_constant__ EmbeddingArgs args) {
  embed<float, 4>(args);
}
extern "C" __global__ void embedding_bf16_any(const __grid_constant__ EmbeddingArgs args) {
  embed<BF16, 1>(args);
}
extern "C" __global__ void embedding_f32_any(const __grid_constant__ EmbeddingArgs args) {
  embed<float, 1>(args);
}
extern "C" __global__ void __launch_bounds__(1024)
    embedding_sort(const __grid_constant__ EmbeddingSortArgs args) {
  sort_ids(args);
}
extern "C" __global__ void embedding_backward_bf16(const __grid_constant__ EmbeddingGradArgs args) {
  embedding_backward<BF16, 8>(args);
}
extern "C" __global__ void embedding_backward_f32(const __grid_constant__ EmbeddingGradArgs args) {
  embedding_backward<float, 4>(args);
}
extern "C" __global__ void embedding_backward_bf16_any(const __grid_constant__ EmbeddingGradArgs args) {
  embedding_backward<BF16, 1>(args);
}
extern "C" __global__ void embedding_backward_f32_any(const __grid_constant__ EmbeddingGradArgs args) {
  embedding_backward<float, 1>(args);
}

}  // namespace strata::gpu
