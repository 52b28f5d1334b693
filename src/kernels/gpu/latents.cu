// Latent attention besides attention itself (src/ops/latent_attention): rows of heads from latents, multiplications of
// each head by its part of a weight, and rows in their parts.
#include "kernels/gpu/args_attention.h"
#include "kernels/gpu/args_parts.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

// Units of a copy.
__device__ __forceinline__ void copy_unit(float4* to, const float4* from) {
  float bits[4];
  load(reinterpret_cast<const float*>(from), bits);
  store(reinterpret_cast<float*>(to), bits);
}
template <typename Unit>
__device__ __forceinline__ void copy_unit(Unit* to, const Unit* from) {
  *to = *from;
}

// One block row per row of the whole, a thread per unit of its parts.
template <typename Unit>
__device__ __forceinline__ void row_parts(const RowPartsArgs& args) {
  const int row = static_cast<int>(blockIdx.x);
  int64_t place = row;
  if (args.entries != nullptr) {
    const int sequence = row / args.length;
    const int at = (args.position != nullptr ? args.position[sequence] : 0) + row % args.length;
    if (at >= args.capacity) return;
    place = static_cast<int64_t>(args.entries[sequence]) * args.capacity + at;
  }
  int unit = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int i = 0; i < kMostRowParts; ++i) {
    if (i >= args.count) return;
    const RowPart& part = args.parts[i];
    if (unit < part.width) {
      Unit* const whole = static_cast<Unit*>(args.whole) + place * args.stride + part.first + unit;
      Unit* const own = static_cast<Unit*>(part.at) + row * part.stride + unit;
      if (args.split != 0) {
        copy_unit(own, whole);
      } else {
        copy_unit(whole, own);
      }
      return;
    }
    unit -= part.width;
  }
}

// One block row per row, kCount elements per thread.
template <typename T, int kCount>
__device__ __forceinline__ void latent_heads(const LatentHeadsArgs& args) {
  const int size = args.plain + args.rotary, queries = args.heads * size, keys = args.heads * args.plain,
            values = args.heads * args.value, width = 2 * queries + values;
  const int64_t row = blockIdx.x;
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  if (column >= width) return;
  const T* from;
  if (column < queries) {
    from = static_cast<const T*>(args.q) + row * queries + column;
  } else if (column < 2 * queries) {
    const int head = (column - queries) / size, at = (column - queries) % size;
    from = at < args.plain ? static_cast<const T*>(args.kv) + row * (keys + values) + head * args.plain + at
                           : static_cast<const T*>(args.rotated) + row * args.rotary + at - args.plain;
  } else {
    from = static_cast<const T*>(args.kv) + row * (keys + values) + keys + column - 2 * queries;
  }
  float x[kCount];
  load(from, x);
  store(static_cast<T*>(args.qkv) + row * width + column, x);
}

template <typename T, int kCount>
__device__ __forceinline__ void latent_heads_backward(const LatentHeadsArgs& args) {
  const int size = args.plain + args.rotary, queries = args.heads * size, keys = args.heads * args.plain,
            values = args.heads * args.value, width = 2 * queries + values;
  const int64_t row = blockIdx.x;
  const T* const given = static_cast<const T*>(args.qkv) + row * width;
  int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  // One store for all parts: nvcc joins the ends of equal ones, and then stores elements.
  float x[kCount];
  T* to;
  if (column < queries + keys + values) {
    const T* from = given + column;
    to = static_cast<T*>(args.q) + row * queries + column;
    if (column >= queries) {
      column -= queries;
      from = given + queries +
             (column < keys ? column / args.plain * size + column % args.plain : queries + column - keys);
      to = static_cast<T*>(args.kv) + row * (keys + values) + column;
    }
    load(from, x);
  } else {
    column -= queries + keys + values;
    if (column >= args.rotary) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = 0.0f;
#pragma unroll 1
    for (int head = 0; head < args.heads; ++head) {
      float more[kCount];
      load(given + queries + head * size + args.plain + column, more);
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] += more[i];
    }
    to = static_cast<T*>(args.rotated) + row * args.rotary + column;
  }
  store(to, x);
}

// A block of 128 threads has 32 rows and 64 columns of a head's result, 32 steps of the depth at a time.
template <typename T>
__device__ __forceinline__ void head_products(const HeadProductsArgs& args) {
  constexpr int kRows = 32, kColumns = 64, kDepth = 32, kThreads = 128;
  __shared__ __align__(16) float a[kRows][kDepth + 4], b[kDepth][kColumns + 4];
  const int thread = static_cast<int>(threadIdx.x), own_row = thread / 16 * 4, own_column = thread % 16 * 4;
  const int column0 = static_cast<int>(blockIdx.x) * kColumns, row0 = static_cast<int>(blockIdx.y) * kRows;
  const int64_t head = blockIdx.z;
  const T* const from = static_cast<const T*>(args.a) + head * args.a_head;
  const float* const weight = args.b + head * args.b_stride;
  float sum[4][4] = {};
  for (int depth0 = 0; depth0 < args.k; depth0 += kDepth) {
    __syncthreads();
    for (int i = thread; i < kRows * kDepth; i += kThreads) {
      const int row = i / kDepth, k = i % kDepth;
      const bool inside = row0 + row < args.rows && depth0 + k < args.k;
      a[row][k] = inside ? to_float(from[(row0 + row) * args.a_stride + depth0 + k]) : 0.0f;
    }
    for (int i = thread; i < kDepth * kColumns; i += kThreads) {
      // Neighbours in memory are neighbouring threads'.
      const int k = args.transposed != 0 ? i % kDepth : i / kColumns,
                n = args.transposed != 0 ? i / kDepth : i % kColumns;
      const bool inside = depth0 + k < args.k && column0 + n < args.n;
      const int64_t at = args.transposed != 0 ? static_cast<int64_t>(column0 + n) * args.k + depth0 + k
                                              : static_cast<int64_t>(depth0 + k) * args.n + column0 + n;
      b[k][n] = inside ? to_float(from_float<T>(weight[at])) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      float right[4];
      load(&b[k][own_column], right);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float left = a[own_row + i][k];
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left, right[j], sum[i][j]);
      }
    }
  }
  T* const to = static_cast<T*>(args.c) + head * args.c_head;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row0 + own_row + i < args.rows && column0 + own_column + j < args.n)
        to[(row0 + own_row + i) * args.c_stride + column0 + own_column + j] = from_float<T>(sum[i][j]);
    }
  }
}

#define STRATA_LATENTS(NAME, ARGS, ...)                                                       \
  extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ ARGS args) { \
    __VA_ARGS__(args);                                                                        \
  }
STRATA_LATENTS(row_parts_16, RowPartsArgs, row_parts<float4>)
STRATA_LATENTS(row_parts_4, RowPartsArgs, row_parts<uint32_t>)
STRATA_LATENTS(row_parts_2, RowPartsArgs, row_parts<uint16_t>)
STRATA_LATENTS(latent_heads_bf16, LatentHeadsArgs, latent_heads<BF16, 8>)
STRATA_LATENTS(latent_heads_f32, LatentHeadsArgs, latent_heads<float, 4>)
STRATA_LATENTS(latent_heads_bf16_any, LatentHeadsArgs, latent_heads<BF16, 1>)
STRATA_LATENTS(latent_heads_f32_any, LatentHeadsArgs, latent_heads<float, 1>)
STRATA_LATENTS(latent_heads_backward_bf16, LatentHeadsArgs, latent_heads_backward<BF16, 8>)
STRATA_LATENTS(latent_heads_backward_f32, LatentHeadsArgs, latent_heads_backward<float, 4>)
STRATA_LATENTS(latent_heads_backward_bf16_any, LatentHeadsArgs, latent_heads_backward<BF16, 1>)
STRATA_LATENTS(latent_heads_backward_f32_any, LatentHeadsArgs, latent_heads_backward<float, 1>)
STRATA_LATENTS(head_products_bf16, HeadProductsArgs, head_products<BF16>)
STRATA_LATENTS(head_products_f32, HeadProductsArgs, head_products<float>)

}  // namespace strata::gpu
