// A rank's share of a value that it has whole, and where its part of a vocabulary begins.
#include "kernels/gpu/args_parts.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

__device__ __forceinline__ int place_on_axis(const int32_t* rank, int axis, int ranks) {
  return ranks > 1 ? rank[axis] : 0;
}

// A thread per unit; 16 bytes as four words.
template <typename Unit, int kCount>
__device__ __forceinline__ void take_share(const TakeShareArgs& args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= args.rows * args.share) return;
  const int place = place_on_axis(args.rank, args.axis, args.ranks),
            number = args.mirrored != 0 ? args.ranks - 1 - place : place;
  const int64_t row = i / args.share, unit = i % args.share;
  const int64_t of_part = number * args.share + unit;
  const bool held = of_part < args.size;
  const Unit* const from =
      static_cast<const Unit*>(args.x) + (row * args.stride + args.first + of_part) * kCount;
  Unit* const to = static_cast<Unit*>(args.out) + (row * args.out_stride + args.out_first + unit) * kCount;
  if constexpr (kCount > 1) {
    float bits[kCount] = {};
    if (held) load(from, bits);
    store(to, bits);
  } else {
    *to = held ? *from : Unit{0};
  }
}

extern "C" __global__ void __launch_bounds__(256) take_share_16(const __grid_constant__ TakeShareArgs args) {
  take_share<float, 4>(args);
}
extern "C" __global__ void __launch_bounds__(256) take_share_4(const __grid_constant__ TakeShareArgs args) {
  take_share<uint32_t, 1>(args);
}
extern "C" __global__ void __launch_bounds__(256) take_share_2(const __grid_constant__ TakeShareArgs args) {
  take_share<uint16_t, 1>(args);
}
extern "C" __global__ void __launch_bounds__(256) vocab_start(const __grid_constant__ VocabStartArgs args) {
  const int part = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (part < args.parts)
    args.start[part] = (place_on_axis(args.rank, args.axis, args.ranks) * args.parts + part) * args.rows;
}

}  // namespace strata::gpu
