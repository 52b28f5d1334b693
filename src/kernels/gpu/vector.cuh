// Loads and stores of several consecutive elements, fp32 or bf16, with 16-byte accesses if there are enough
// of them. Addresses are aligned to the whole access (at most 16 bytes).
#pragma once

#include "kernels/gpu/intrinsics.cuh"

namespace strata::gpu {

// Elements per 16-byte access.
template <typename T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// A number as an argument of generic lambdas.
template <int kValue>
struct Count {
  static constexpr int value = kValue;
};

template <int kCount>
__device__ __forceinline__ void load(const float* from, float (&to)[kCount]) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from[i];
  }
}

template <int kCount>
__device__ __forceinline__ void load(const BF16* from, float (&to)[kCount]) {
  if constexpr (kCount % 8 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      const uint4 eight = *reinterpret_cast<const uint4*>(from + i);
      const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int p = 0; p < 4; ++p) to[i + 2 * p] = low_half(pairs[p]), to[i + 2 * p + 1] = high_half(pairs[p]);
    }
  } else if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const uint2 four = *reinterpret_cast<const uint2*>(from + i);
      to[i] = low_half(four.x), to[i + 1] = high_half(four.x), to[i + 2] = low_half(four.y),
      to[i + 3] = high_half(four.y);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = to_float(from[i]);
  }
}

template <int kCount>
__device__ __forceinline__ void store(float* to, const float (&from)[kCount]) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      *reinterpret_cast<float4*>(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from[i];
  }
}

template <int kCount>
__device__ __forceinline__ void store(BF16* to, const float (&from)[kCount]) {
  if constexpr (kCount % 8 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 8)
      *reinterpret_cast<uint4*>(to + i) =
          make_uint4(pack_bf16(from[i], from[i + 1]), pack_bf16(from[i + 2], from[i + 3]),
                     pack_bf16(from[i + 4], from[i + 5]), pack_bf16(from[i + 6], from[i + 7]));
  } else if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      *reinterpret_cast<uint2*>(to + i) =
          make_uint2(pack_bf16(from[i], from[i + 1]), pack_bf16(from[i + 2], from[i + 3]));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from_float<BF16>(from[i]);
  }
}

// Whether rows that start at this pointer, `stride` elements apart, allow accesses of `count` elements.
template <typename T>
__device__ __forceinline__ bool aligned_to(const T* pointer, int64_t stride, int count) {
  const int bytes = min(16, count * static_cast<int>(sizeof(T)));
  return (reinterpret_cast<uintptr_t>(pointer) |
          static_cast<uintptr_t>(stride * static_cast<int64_t>(sizeof(T)))) %
             bytes ==
         0;
}

}  // namespace strata::gpu
