// Activation functions of feed-forward blocks, plain and gated.
#include "kernels/gpu/args.h"
#include "kernels/gpu/args_experts.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

struct ValueAndSlope {
  float value, slope;
};

// Numbered like ActivationKind.
template <int kKind>
struct Activation;
template <>
struct Activation<0> {  // silu
  static __device__ __forceinline__ ValueAndSlope of(float x) {
    const float s = 1.0f / (1.0f + exp_fast(-x));
    return {x * s, fmaf(x * s, 1.0f - s, s)};
  }
};
template <>
struct Activation<1> {  // GELU by tanh: (1 + tanh u) / 2 is the logistic of 2 u
  static __device__ __forceinline__ ValueAndSlope of(float x) {
    constexpr float kScale = 1.59576912f;  // 2 sqrt(2 / pi)
    const float square = x * x, s = 1.0f / (1.0f + exp_fast(-x * fmaf(square, kScale * 0.044715f, kScale)));
    const float inner = fmaf(square, 3.0f * kScale * 0.044715f, kScale);
    // If the logistic is 0 or 1, the square may be infinite.
    const float bend = s * (1.0f - s);
    return {x * s, bend == 0.0f ? s : fmaf(x * inner, bend, s)};
  }
};
template <>
struct Activation<2> {  // GELU by erf
  static __device__ __forceinline__ ValueAndSlope of(float x) {
    const float s = 0.5f * erfcf(-0.70710678f * x);
    return {x * s, fmaf(x * 0.39894228f, exp_fast(-0.5f * x * x), s)};
  }
};
template <>
struct Activation<3> {  // relu
  static __device__ __forceinline__ ValueAndSlope of(float x) {
    return {x > 0.0f ? x : 0.0f, x > 0.0f ? 1.0f : 0.0f};
  }
};
template <>
struct Activation<4> {  // relu²
  static __device__ __forceinline__ ValueAndSlope of(float x) {
    const float above = x > 0.0f ? x : 0.0f;
    return {above * above, 2.0f * above};
  }
};

// work(Activation<kind>()). Loads and stores stay outside, one in the source for each in the code: nvcc joins equal stores
// of several branches into one of single words.
template <typename F>
__device__ __forceinline__ void with_activation(int kind, F work) {
  switch (kind) {
    case 0:
      work(Activation<0>());
      break;
    case 1:
      work(Activation<1>());
      break;
    case 2:
      work(Activation<2>());
      break;
    case 3:
      work(Activation<3>());
      break;
    case 4:
      work(Activation<4>());
      break;
  }
}

// y = f(x), or dx = dy · f'(x).
template <typename T, int kCount>
__device__ __forceinline__ void activate(const ActivationArgs& args) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount;
  if (i >= args.rows * args.width) return;
  float x[kCount], dy[kCount];
  load(static_cast<const T*>(args.x) + i, x);
  if (args.dy != nullptr) load(static_cast<const T*>(args.dy) + i, dy);
  with_activation(args.kind, [&](auto activation) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const ValueAndSlope f = activation.of(x[k]);
      x[k] = args.dy != nullptr ? dy[k] * f.slope : f.value;
    }
  });
  store(static_cast<T*>(args.out) + i, x);
}

// Rows of x are [gate | up]: y = f(gate) · up, or the gradients of both from dy.
template <typename T, int kCount>
__device__ __forceinline__ void gate(const ActivationArgs& args) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount;
  if (i >= args.rows * args.width) return;
  const int64_t at = i + i / args.width * args.width;  // index in the gate half
  float g[kCount], up[kCount];
  load(static_cast<const T*>(args.x) + at, g);
  load(static_cast<const T*>(args.x) + at + args.width, up);
  T* const out = static_cast<T*>(args.out);
  T* last = out + i;
  if (args.dy == nullptr) {
    with_activation(args.kind, [&](auto activation) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) up[k] = activation.of(g[k]).value * up[k];
    });
  } else {
    float dy[kCount];
    load(static_cast<const T*>(args.dy) + i, dy);
    with_activation(args.kind, [&](auto activation) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const ValueAndSlope f = activation.of(g[k]);
        g[k] = dy[k] * up[k] * f.slope;
        up[k] = dy[k] * f.value;
      }
    });
    store(out + at, g);
    last = out + at + args.width;
  }
  store(last, up);
}

// gpt-oss's gate, with cut operands.
template <typename T, int kCount>
__device__ __forceinline__ void clamped_gate(const ClampedGatedArgs& args) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kCount;
  if (i >= args.rows * args.width) return;
  const int64_t at = i + i / args.width * args.width;  // index in the gate half
  float gate[kCount], up[kCount], dy[kCount];
  load(static_cast<const T*>(args.x) + at, gate);
  load(static_cast<const T*>(args.x) + at + args.width, up);
  if (args.dy != nullptr) load(static_cast<const T*>(args.dy) + i, dy);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const bool free_gate = !(gate[k] > args.limit), free_up = !(fabsf(up[k]) > args.limit);
    const float g = free_gate ? gate[k] : args.limit, u = free_up        ? up[k]
                                                          : up[k] > 0.0f ? args.limit
                                                                         : -args.limit;
    const float s = 1.0f / (1.0f + exp_fast(-args.alpha * g));
    if (args.dy == nullptr) {
      up[k] = (u + 1.0f) * g * s;
      continue;
    }
    gate[k] = free_gate ? dy[k] * (u + 1.0f) * s * fmaf(args.alpha * g, 1.0f - s, 1.0f) : 0.0f;
    up[k] = free_up ? dy[k] * g * s : 0.0f;
  }
  T* const out = static_cast<T*>(args.out);
  T* last = out + i;
  if (args.dy != nullptr) {
    store(out + at, gate);
    last = out + at + args.width;
  }
  store(last, up);
}

#define STRATA_ACTIVATION(NAME, TYPE, T, COUNT, ENDING)                                                    \
  extern "C" __global__ void activation_##TYPE##ENDING(const __grid_constant__ ActivationArgs args) {      \
    activate<T, COUNT>(args);                                                                              \
  }                                                                                                        \
  extern "C" __global__ void gated_##TYPE##ENDING(const __grid_constant__ ActivationArgs args) {           \
    gate<T, COUNT>(args);                                                                                  \
  }                                                                                                        \
  extern "C" __global__ void clamped_gated_##TYPE##ENDING(const __grid_constant__ ClampedGatedArgs args) { \
    clamped_gate<T, COUNT>(args);                                                                          \
  }
STRATA_ACTIVATION(activation, bf16, BF16, 8, )
STRATA_ACTIVATION(activation, f32, float, 4, )
STRATA_ACTIVATION(activation, bf16, BF16, 1, _any)
STRATA_ACTIVATION(activation, f32, float, 1, _any)

}  // namespace strata::gpu
