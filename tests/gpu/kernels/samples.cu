// Sample kernels of the kinds that training needs, for tests of the executor: compiled by nvcc, run from PTX.
#include <cuda_bf16.h>

#include <cstdint>

extern "C" __global__ void vector_add(float* out, const float* a, const float* b, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = a[i] + b[i];
}

// One sum per block, through shared memory. `kBarrier` false plants a fault.
template <bool kBarrier>
__device__ void reduce_block(float* out, const float* in, int n) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x); i < n;
       i += static_cast<int>(gridDim.x * 256))
    sum += in[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    if (kBarrier) __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
extern "C" __global__ void reduce_sum(float* out, const float* in, int n) {
  reduce_block<true>(out, in, n);
}
extern "C" __global__ void reduce_sum_without_barrier(float* out, const float* in, int n) {
  reduce_block<false>(out, in, n);
}

// One warp per row.
extern "C" __global__ void softmax_rows(float* out, const float* in, int columns) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
  const float* from = in + static_cast<int64_t>(row) * columns;
  float* to = out + static_cast<int64_t>(row) * columns;
  float most = -INFINITY;
  for (int c = lane; c < columns; c += 32) most = fmaxf(most, from[c]);
  for (int m = 16; m > 0; m /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, m));
  float sum = 0;
  for (int c = lane; c < columns; c += 32) sum += expf(from[c] - most);
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  for (int c = lane; c < columns; c += 32) to[c] = expf(from[c] - most) / sum;
}

// Library functions compile to long chains of instructions.
extern "C" __global__ void math_functions(float* out, const float* in, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const float x = in[i];
  float* to = out + i * 20;
  to[0] = sinf(x);
  to[1] = cosf(x * 1e5f);
  to[2] = expf(x);
  to[3] = logf(fabsf(x) + 1e-20f);
  to[4] = powf(fabsf(x), 1.7f);
  to[5] = tanhf(x);
  to[6] = erff(x);
  to[7] = fmodf(x * 100, 7.3f);
  to[8] = cbrtf(x);
  to[9] = atan2f(x, 0.3f);
  to[10] = log1pf(fabsf(x));
  to[11] = expm1f(x);
  to[12] = sqrtf(fabsf(x)) / (x + 3);
  to[13] = rintf(x * 10) + floorf(x * 10) * 100 + ceilf(x * 10) * 10000;
  to[14] = static_cast<float>(exp(static_cast<double>(x)) / 3.0);
  to[15] = static_cast<float>(sin(static_cast<double>(x) * 1000));
  to[16] = static_cast<float>(static_cast<int64_t>(x * 1e6f) / 77 + static_cast<int64_t>(x * 1e6f) % 77);
  to[17] = static_cast<float>(__popc(__float_as_uint(x)) + __clz(i) + __ffs(i));
  to[18] = lgammaf(fabsf(x) + 0.5f);
  to[19] = __uint_as_float(__byte_perm(__float_as_uint(x), 0, 0x3210));
}

// c[m][n] = a[m][k] · b[k][n] in tiles of 64 × 64 × 32 by 4 warps. a and b are copied asynchronously into two
// buffers; rows outside the matrices are filled with zeros. k and n are multiples of 8. kFault: 1 swaps two
// operands of mma, 2 waits for one group too few.
constexpr int kTile = 64, kDepth = 32, kPitchA = kDepth + 8, kPitchB = kTile + 8;

__device__ void copy16(void* to, const void* from, bool inside) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}

template <int kFault>
__device__ void gemm(float* c, const __nv_bfloat16* a, const __nv_bfloat16* b, int m, int n, int k) {
  __shared__ __align__(16) __nv_bfloat16 left[2][kTile * kPitchA];
  __shared__ __align__(16) __nv_bfloat16 right[2][kDepth * kPitchB];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int row0 = static_cast<int>(blockIdx.y) * kTile, column0 = static_cast<int>(blockIdx.x) * kTile;
  const auto load = [&](int buffer, int k0) {
    for (int i = thread; i < kTile * kDepth / 8; i += 128) {
      const int row = i / (kDepth / 8), column = i % (kDepth / 8) * 8;
      const bool inside = row0 + row < m && k0 + column < k;
      copy16(left[buffer] + row * kPitchA + column,
             a + (inside ? static_cast<int64_t>(row0 + row) * k + k0 + column : 0), inside);
    }
    for (int i = thread; i < kDepth * kTile / 8; i += 128) {
      const int row = i / (kTile / 8), column = i % (kTile / 8) * 8;
      const bool inside = k0 + row < k && column0 + column < n;
      copy16(right[buffer] + row * kPitchB + column,
             b + (inside ? static_cast<int64_t>(k0 + row) * n + column0 + column : 0), inside);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float sum[8][4] = {};
  load(0, 0);
  const int steps = (k + kDepth - 1) / kDepth;
  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    if (step + 1 < steps) {
      load(buffer ^ 1, (step + 1) * kDepth);
      asm volatile("cp.async.wait_group %0;" ::"n"(kFault == 2 ? 2 : 1) : "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    for (int kk = 0; kk < kDepth; kk += 16) {
      uint32_t x[4];
      const auto from = static_cast<uint32_t>(
          __cvta_generic_to_shared(left[buffer] + (warp * 16 + lane % 16) * kPitchA + kk + lane / 16 * 8));
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                   : "r"(from)
                   : "memory");
      for (int j = 0; j < 8; ++j) {
        uint32_t y[2];
        const auto at = static_cast<uint32_t>(
            __cvta_generic_to_shared(right[buffer] + (kk + lane % 16) * kPitchB + j * 8));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1])
                     : "r"(at)
                     : "memory");
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
            "%9}, {%0, %1, %2, %3};"
            : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
            : "r"(x[0]), "r"(x[kFault == 1 ? 2 : 1]), "r"(x[kFault == 1 ? 1 : 2]), "r"(x[3]), "r"(y[0]),
              "r"(y[1]));
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 8; ++j) {
    const int row = row0 + warp * 16 + lane / 4, column = column0 + j * 8 + lane % 4 * 2;
    if (column >= n) continue;
    if (row < m)
      *reinterpret_cast<float2*>(c + static_cast<int64_t>(row) * n + column) =
          make_float2(sum[j][0], sum[j][1]);
    if (row + 8 < m)
      *reinterpret_cast<float2*>(c + static_cast<int64_t>(row + 8) * n + column) =
          make_float2(sum[j][2], sum[j][3]);
  }
}
extern "C" __global__ void gemm_bf16(float* c, const __nv_bfloat16* a, const __nv_bfloat16* b, int m, int n,
                                     int k) {
  gemm<0>(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_bf16_swapped(float* c, const __nv_bfloat16* a, const __nv_bfloat16* b, int m,
                                             int n, int k) {
  gemm<1>(c, a, b, m, n, k);
}
extern "C" __global__ void gemm_bf16_early(float* c, const __nv_bfloat16* a, const __nv_bfloat16* b, int m,
                                           int n, int k) {
  gemm<2>(c, a, b, m, n, k);
}
