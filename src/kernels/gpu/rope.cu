// Rotary position embedding: one thread for kCount pairs of a head; and its table of angles.
#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

template <typename T, int kCount, bool kAdjacent>
__device__ __forceinline__ void rotate(const RopeArgs& args, const T* in, T* out, const float* table,
                                       int pair) {
  const int half = args.rotary_dim / 2;
  float angles[2 * kCount];
  load(table + 2 * pair, angles);
  if constexpr (kAdjacent) {
    float x[2 * kCount];
    load(in + 2 * pair, x);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float cosine = angles[2 * i], sine = args.inverse != 0 ? -angles[2 * i + 1] : angles[2 * i + 1];
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * cosine - b * sine;
      x[2 * i + 1] = b * cosine + a * sine;
    }
    store(out + 2 * pair, x);
  } else {
    float a[kCount], b[kCount];
    load(in + pair, a);
    load(in + half + pair, b);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float cosine = angles[2 * i], sine = args.inverse != 0 ? -angles[2 * i + 1] : angles[2 * i + 1];
      const float first = a[i];
      a[i] = first * cosine - b[i] * sine;
      b[i] = b[i] * cosine + first * sine;
    }
    store(out + pair, a);
    store(out + half + pair, b);
  }
}

// Vectors of kCount pairs of all heads come first; then, if out is not in, the elements of the row that are
// copied.
template <typename T, int kCount>
__device__ __forceinline__ void rope(const RopeArgs& args) {
  const int half = args.rotary_dim / 2, vectors = half / kCount;
  const int64_t row = blockIdx.x;
  const T* const in = static_cast<const T*>(args.in) + row * args.row_stride;
  T* const out = static_cast<T*>(args.out) + row * args.row_stride;
  int index = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (index < args.heads * vectors) {
    const int first = index / vectors * args.head_dim + args.first, pair = index % vectors * kCount;
    const float* const table = args.table + static_cast<int64_t>(args.positions[row]) * args.rotary_dim;
    if (args.adjacent != 0) {
      rotate<T, kCount, true>(args, in + first, out + first, table, pair);
    } else {
      rotate<T, kCount, false>(args, in + first, out + first, table, pair);
    }
    return;
  }
  if (in == out) return;
  const int column = (index - args.heads * vectors) * kCount;
  if (column >= args.width) return;
  const int within = column % args.head_dim - args.first;
  if (column < args.heads * args.head_dim && within >= 0 && within < args.rotary_dim) return;
  float vec[kCount];
  load(in + column, vec);
  store(out + column, vec);
}

// Angles reach the number of positions in radians: only fp64 keeps their fraction of a turn.
__device__ __forceinline__ void fill_table(const RopeTableArgs& args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= args.positions * args.pairs) return;
  const double angle = static_cast<double>(i / args.pairs) * args.frequencies[i % args.pairs];
  double sine, cosine;
  sincos(angle, &sine, &cosine);
  args.table[2 * i] = static_cast<float>(args.magnitude * cosine);
  args.table[2 * i + 1] = static_cast<float>(args.magnitude * sine);
}

extern "C" __global__ void rope_bf16(const __grid_constant__ RopeArgs args) {
  rope<BF16, 8>(args);
}
extern "C" __global__ void rope_f32(const __grid_constant__ RopeArgs args) {
  rope<float, 4>(args);
}
extern "C" __global__ void rope_bf16_any(const __grid_constant__ RopeArgs args) {
  rope<BF16, 1>(args);
}
extern "C" __global__ void rope_f32_any(const __grid_constant__ RopeArgs args) {
  rope<float, 1>(args);
}

extern "C" __global__ void rope_table(const __grid_constant__ RopeTableArgs args) {
  fill_table(args);
}

}  // namespace strata::gpu
