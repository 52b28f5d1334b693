// What intrinsics.cuh needs of HIP (5.2 of Debian 12, gfx90a): conversions, approximations, exchanges between
// lanes. tools/hip.sh compiles the kernels with it; they have not run on an AMD GPU, and there is no device of
// HIP. Tensor-core instructions and asynchronous copies have no counterpart here: the kernels that use them
// are not compiled.
//
// A wave of gfx90a has 64 lanes; kernels assume warps of 32. The functions below keep to the half of the wave
// that the calling lane is in. Nothing else considers that the halves share a program counter.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

// Kernels only read their arguments, which hipcc leaves in constant memory without this.
#define __grid_constant__

namespace strata::gpu {

// Rounds to nearest even; any NaN becomes 0x7fff, as NVIDIA's conversion has it.
__device__ __forceinline__ uint32_t bf16_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  return bf16_bits(high) << 16 | bf16_bits(low);
}

// The single instruction v_exp_f32 of LLVM 15.
__device__ __forceinline__ float exp2_fast(float x) {
  return __builtin_exp2f(x);
}

// HIP 5.2 has no forms with a mask of lanes.
template <typename T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask, 32);
}
template <typename T>
__device__ __forceinline__ T shuffle_from(T value, int lane) {
  return __shfl(value, lane, 32);
}
__device__ __forceinline__ uint32_t lanes_with(bool is) {
  return static_cast<uint32_t>(__ballot(is) >> (__lane_id() & 32u));
}
// A wave's lanes are in step: only the order of its accesses has to be kept.
__device__ __forceinline__ void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}

// HIP's __fadd_rn and __fmul_rn are the plain operators, which clang may fuse.
__device__ __forceinline__ float add_apart(float a, float b) {
#pragma clang fp contract(off)
  return a + b;
}
__device__ __forceinline__ float multiply_apart(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}

}  // namespace strata::gpu
