// Element-wise arithmetic (16 bytes of the narrower operand per thread) and sums over rows.
#include "kernels/gpu/args.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

// Calls body(first, count) with kCount consecutive elements, or with single ones at the end and for unaligned
// pointers.
template <int kCount, typename Body>
__device__ __forceinline__ void for_elements(int64_t n, bool vectors, const Body& body) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount;
  if (vectors && first + kCount <= n) {
    body(first, Count<kCount>{});
  } else {
    for (int64_t i = first; i < n && i < first + kCount; ++i) body(i, Count<1>{});
  }
}

template <typename T>
__device__ __forceinline__ void add(const ElementArgs& args) {
  T* const out = static_cast<T*>(args.out);
  const T *a = static_cast<const T*>(args.a), *b = static_cast<const T*>(args.b);
  constexpr int kCount = kVector<T>;
  for_elements<kCount>(args.n,
                       aligned_to(out, 0, kCount) && aligned_to(a, 0, kCount) && aligned_to(b, 0, kCount),
                       [&](int64_t i, auto count) {
                         float x[count.value], y[count.value];
                         load(a + i, x);
                         load(b + i, y);
#pragma unroll
                         for (int k = 0; k < count.value; ++k) x[k] += y[k];
                         store(out + i, x);
                       });
}

// Functions of an element and a factor.
struct Times {
  static __device__ __forceinline__ float of(float x, float factor) { return x * factor; }
};
struct Clamp {
  static __device__ __forceinline__ float of(float x, float limit) {
    return x > limit ? limit : x < -limit ? -limit : x;  // NaN stays
  }
};
struct Softcap {
  static __device__ __forceinline__ float of(float x, float cap) { return cap * tanhf(x / cap); }
};
template <typename T, typename Function>
__device__ __forceinline__ void apply(const ElementArgs& args) {
  T* const out = static_cast<T*>(args.out);
  const T* const a = static_cast<const T*>(args.a);
  constexpr int kCount = kVector<T>;
  for_elements<kCount>(args.n, aligned_to(out, 0, kCount) && aligned_to(a, 0, kCount),
                       [&](int64_t i, auto count) {
                         float x[count.value];
                         load(a + i, x);
#pragma unroll
                         for (int k = 0; k < count.value; ++k) x[k] = Function::of(x[k], args.factor);
                         store(out + i, x);
                       });
}

// a: the gradient of the result; b: the operand of clamp.
template <typename T>
__device__ __forceinline__ void clamp_gradient(const ElementArgs& args) {
  T* const out = static_cast<T*>(args.out);
  const T *a = static_cast<const T*>(args.a), *b = static_cast<const T*>(args.b);
  constexpr int kCount = kVector<T>;
  for_elements<kCount>(args.n,
                       aligned_to(out, 0, kCount) && aligned_to(a, 0, kCount) && aligned_to(b, 0, kCount),
                       [&](int64_t i, auto count) {
                         float dy[count.value], x[count.value];
                         load(a + i, dy);
                         load(b + i, x);
#pragma unroll
                         for (int k = 0; k < count.value; ++k)
                           dy[k] = x[k] >= -args.factor && x[k] <= args.factor ? dy[k] : 0.0f;
                         store(out + i, dy);
                       });
}

template <typename T>
__device__ __forceinline__ void take_row(const TakeRowArgs& args) {
  T* const out = static_cast<T*>(args.out);
  const T* const row = static_cast<const T*>(args.x) + *args.index * args.columns;
  constexpr int kCount = kVector<T>;
  for_elements<kCount>(args.columns, aligned_to(out, 0, kCount) && aligned_to(row, 0, kCount),
                       [&](int64_t i, auto count) {
                         float x[count.value];
                         load(row + i, x);
                         store(out + i, x);
                       });
}

template <typename T>
__device__ __forceinline__ void fill(const ElementArgs& args) {
  T* const out = static_cast<T*>(args.out);
  constexpr int kCount = kVector<T>;
  for_elements<kCount>(args.n, aligned_to(out, 0, kCount), [&](int64_t i, auto count) {
    float x[count.value];
#pragma unroll
    for (int k = 0; k < count.value; ++k) x[k] = args.factor;
    store(out + i, x);
  });
}

template <typename Out, typename In>
__device__ __forceinline__ void cast(const ElementArgs& args) {
  Out* const out = static_cast<Out*>(args.out);
  const In* const a = static_cast<const In*>(args.a);
  constexpr int kCount = 8;
  for_elements<kCount>(args.n, aligned_to(out, 0, kCount) && aligned_to(a, 0, kCount),
                       [&](int64_t i, auto count) {
                         float x[count.value];
                         load(a + i, x);
                         store(out + i, x);
                       });
}

template <typename T>
__device__ __forceinline__ void add_row(const AddRowArgs& args) {
  const int64_t n = args.rows * args.columns;
  const T* const x = static_cast<const T*>(args.x);
  T* const out = static_cast<T*>(args.out);
  constexpr int kCount = kVector<T>;
  const bool vectors = args.columns % kCount == 0 && aligned_to(out, 0, kCount) && aligned_to(x, 0, kCount) &&
                       aligned_to(args.row, 0, kCount);
  for_elements<kCount>(n, vectors, [&](int64_t i, auto count) {
    float value[count.value], more[count.value];
    load(x + i, value);
    load(args.row + i % args.columns, more);
#pragma unroll
    for (int k = 0; k < count.value; ++k) value[k] += more[k];
    store(out + i, value);
  });
}

// parts[blockIdx.y][columns]: sums over rows blockIdx.y, + gridDim.y, …; a block covers 32 · kCount columns,
// with eight warps of rows.
template <typename T, int kCount>
__device__ __forceinline__ void column_sums(const ColumnSumsArgs& args) {
  __shared__ float shared[8][kWarp * kCount];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kCount;
  float sum[kCount] = {};
  if (column < args.columns) {
#pragma unroll 4
    for (int64_t row = blockIdx.y * 8 + warp; row < args.rows; row += static_cast<int64_t>(gridDim.y) * 8) {
      float vec[kCount];
      load(static_cast<const T*>(args.in) + row * args.stride + column, vec);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] += vec[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) shared[warp][i * kWarp + lane] = sum[i];
  __syncthreads();
  if (warp == 0 && column < args.columns) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float all = 0.0f;
      for (int w = 0; w < 8; ++w) all += shared[w][i * kWarp + lane];
      args.parts[blockIdx.y * args.columns + column + i] = all;
    }
  }
}

// out[c] (+)= Σ parts[p · stride + c]: 32 columns per block, parts spread over 32 warps.
__device__ __forceinline__ void sum_parts(const ColumnPartsArgs& args) {
  __shared__ float shared[kWarp][kWarp + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0.0f;
  if (column < args.columns) {
#pragma unroll 4
    for (int64_t part = warp; part < args.count; part += kWarp)
      sum += args.parts[part * args.stride + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= args.columns) return;
  sum = 0.0f;
  for (int w = 0; w < kWarp; ++w) sum += shared[w][lane];
  args.out[column] = (args.accumulate != 0 ? args.out[column] : 0.0f) + sum;
}

// out[columns][rows] = in[rows][columns], in tiles of 64 × 64 in shared memory.
template <typename T>
__device__ __forceinline__ void transpose(const TransposeArgs& args) {
  __shared__ T tile[64][64 + 4 / sizeof(T)];
  const int x = static_cast<int>(threadIdx.x) % 64, y = static_cast<int>(threadIdx.x) / 64;
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * 64, column0 = static_cast<int64_t>(blockIdx.x) * 64;
  for (int i = y; i < 64; i += 4) {
    if (row0 + i < args.rows && column0 + x < args.columns)
      tile[i][x] = static_cast<const T*>(args.in)[(row0 + i) * args.columns + column0 + x];
  }
  __syncthreads();
  for (int i = y; i < 64; i += 4) {
    if (column0 + i < args.columns && row0 + x < args.rows)
      static_cast<T*>(args.out)[(column0 + i) * args.rows + row0 + x] = tile[x][i];
  }
}

#define STRATA_KERNEL(NAME, ARGS, ...)                                 \
  extern "C" __global__ void NAME(const __grid_constant__ ARGS args) { \
    __VA_ARGS__(args);                                                 \
  }
STRATA_KERNEL(add_bf16, ElementArgs, add<BF16>)
STRATA_KERNEL(add_f32, ElementArgs, add<float>)
STRATA_KERNEL(scale_bf16, ElementArgs, apply<BF16, Times>)
STRATA_KERNEL(scale_f32, ElementArgs, apply<float, Times>)
STRATA_KERNEL(clamp_bf16, ElementArgs, apply<BF16, Clamp>)
STRATA_KERNEL(clamp_f32, ElementArgs, apply<float, Clamp>)
STRATA_KERNEL(clamp_gradient_bf16, ElementArgs, clamp_gradient<BF16>)
STRATA_KERNEL(clamp_gradient_f32, ElementArgs, clamp_gradient<float>)
STRATA_KERNEL(softcap_f32, ElementArgs, apply<float, Softcap>)
STRATA_KERNEL(fill_bf16, ElementArgs, fill<BF16>)
STRATA_KERNEL(fill_f32, ElementArgs, fill<float>)
STRATA_KERNEL(cast_bf16_f32, ElementArgs, cast<BF16, float>)
STRATA_KERNEL(cast_f32_bf16, ElementArgs, cast<float, BF16>)
STRATA_KERNEL(add_row_bf16, AddRowArgs, add_row<BF16>)
STRATA_KERNEL(add_row_f32, AddRowArgs, add_row<float>)
STRATA_KERNEL(take_row_bf16, TakeRowArgs, take_row<BF16>)
STRATA_KERNEL(take_row_f32, TakeRowArgs, take_row<float>)
STRATA_KERNEL(column_sums_bf16, ColumnSumsArgs, column_sums<BF16, 8>)
STRATA_KERNEL(column_sums_f32, ColumnSumsArgs, column_sums<float, 4>)
STRATA_KERNEL(column_sums_any_bf16, ColumnSumsArgs, column_sums<BF16, 1>)
STRATA_KERNEL(column_sums_any_f32, ColumnSumsArgs, column_sums<float, 1>)
STRATA_KERNEL(column_parts, ColumnPartsArgs, sum_parts)
STRATA_KERNEL(transpose_bf16, TransposeArgs, transpose<BF16>)
STRATA_KERNEL(transpose_f32, TransposeArgs, transpose<float>)

}  // namespace strata::gpu
