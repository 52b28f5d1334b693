// Vendor-specific instructions: matrix instructions, asynchronous copies, shuffles, conversions. Except for
// hopper.cuh, no other file of this folder has inline assembly or uses an intrinsic. NVIDIA's instructions
// are those of sm_80; hip.cuh has their counterparts for AMD.
#pragma once

#include <cstdint>

#ifdef __HIP__
#include "kernels/gpu/hip.cuh"
#endif

namespace strata::gpu {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct BF16 {
  uint16_t bits;
};

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(BF16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
// The two halves of a word; the low half comes first in memory.
__device__ __forceinline__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
#ifndef __HIP__
// Rounds to nearest even.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
#endif
template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ BF16 from_float<BF16>(float value) {
  return {static_cast<uint16_t>(pack_bf16(value, 0.0f) & 0xffffu)};
}

#ifndef __HIP__
// 2^x to about 2 ulp; the logarithm likewise.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Within a unit in the last place; of infinity 0. A division takes more registers, for operands that are out of its range.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif
__device__ __forceinline__ float log_fast(float x) {
  return __logf(x);
}
__device__ __forceinline__ float exp_fast(float x) {
  return __expf(x);
}

#ifndef __HIP__
template <typename T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}

template <typename T>
__device__ __forceinline__ T shuffle_from(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
// The lanes of a warp for which it is true, a bit each.
__device__ __forceinline__ uint32_t lanes_with(bool is) {
  return __ballot_sync(kAllLanes, is);
}
#endif
__device__ __forceinline__ int count_bits(uint32_t bits) {
  return __popc(bits);
}
__device__ __forceinline__ uint32_t bits_of(float value) {
  return __float_as_uint(value);
}

#ifndef __HIP__
// Orders the accesses of a warp's lanes.
__device__ __forceinline__ void sync_warp() {
  __syncwarp();
}
// Rounded on their own, so that the bits are those of a CPU that does not fuse them.
__device__ __forceinline__ float add_apart(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ float multiply_apart(float a, float b) {
  return __fmul_rn(a, b);
}

// Converts a pointer to a shared memory address.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies `bytes` of 16 bytes (0 to 16) from device to shared memory and fills the rest with zeros. `from`
// must be aligned to 16 bytes even if nothing is read.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Like copy_async(), for 4 bytes; writes 0 unless `inside`.
__device__ __forceinline__ void copy_async_word(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all but the newest kPending groups of this thread.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

// Loads four 8 × 8 matrices of 16-bit elements; lane l passes the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

// c[16][8] += a[16][16] · b[16][8]. Of c, lane l holds rows l / 4 and l / 4 + 8, columns l % 4 · 2 and the
// next.
__device__ __forceinline__ void multiply_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

}  // namespace strata::gpu
