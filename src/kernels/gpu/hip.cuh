// The vendor-specific functions of intrinsics.cuh, described there, for HIP 5.2 (Debian 12) on gfx90a:
// conversions, approximations, exchanges between lanes. Tensor-core instructions and asynchronous copies have
// no counterpart here; kernels that use them are not compiled for AMD.
//
// The kernels compile (tools/hip.sh) and nothing more: they have not run on an AMD GPU, and no device starts
// them. They assume warps of 32 lanes, and a wave of gfx90a has 64. The functions below stay within the half
// of the wave that the calling lane is in; nothing else accounts for two warps in one wave.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

// hipcc has no such attribute; it keeps arguments that are only read in constant memory.
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

// One v_exp_f32.
__device__ __forceinline__ float exp2_fast(float x) {
  return __builtin_exp2f(x);
}

// One v_rcp_f32.
__device__ __forceinline__ float reciprocal_fast(float x) {
  return __builtin_amdgcn_rcpf(x);
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
// The lanes of a wave run in step, so only the order of their accesses has to be kept.
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
