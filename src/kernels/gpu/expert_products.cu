// Grouped GEMMs of experts that tensor cores do not compute: fp32, and bf16 in rows of other widths than multiples of 16 bytes.
// Lists and results are those of experts.cu.
#include "kernels/gpu/args.h"
#include "kernels/gpu/plain_tile.cuh"

namespace strata::gpu {

// blockIdx.y: the half of a tile of 128 rows.
template <typename T, bool kRightInner, typename Out>
__device__ __forceinline__ void product_rows(const ExpertsArgs& args) {
  const GemmArgs& gemm = args.gemm;
  const int tile = static_cast<int>(blockIdx.x) % args.tile_count;
  const int64_t first_column =
      static_cast<int64_t>(static_cast<int>(blockIdx.x) / args.tile_count) * kPlainTile;
  const int2 place = *reinterpret_cast<const int2*>(args.tiles + 2 * tile);
  const int expert = place.x, first = place.y + static_cast<int>(blockIdx.y) * kPlainTile;
  if (expert < 0) return;
  const int count = min(kPlainTile, args.offsets[expert + 1] - first);
  if (count <= 0) return;
  const bool real = expert < args.experts;
  const T* const a = static_cast<const T*>(gemm.a);
  const T* const b = static_cast<const T*>(gemm.b) + (real ? expert * args.expert_stride : 0);
  float sum[4][4] = {};
  multiply_plain<true, kRightInner>(
      sum, real ? gemm.k : 0,
      [&](int row, int64_t k) {
        return row < count ? to_float(a[args.a_rows[first + row] * gemm.a_stride + k]) : 0.0f;
      },
      [&](int64_t k, int column) {
        const int64_t n = first_column + column;
        if (n >= gemm.n) return 0.0f;
        return to_float(b[kRightInner ? n * gemm.b_stride + k : k * gemm.b_stride + n]);
      });
  put_plain(sum, [&](int row, int column, float value) {
    const int64_t n = first_column + column;
    if (row >= count || n >= gemm.n) return;
    static_cast<Out*>(gemm.c)[args.c_rows[first + row] * gemm.c_stride + n] = from_float<Out>(value);
  });
}

// blockIdx.x: the tiles of each expert's c.
template <typename T>
__device__ __forceinline__ void product_weights(const ExpertsArgs& args) {
  const GemmArgs& gemm = args.gemm;
  const int tiles_m = (gemm.m + kPlainTile - 1) / kPlainTile,
            tiles_n = (gemm.n + kPlainTile - 1) / kPlainTile;
  const int tile = static_cast<int>(blockIdx.x) % (tiles_m * tiles_n),
            expert = static_cast<int>(blockIdx.x) / (tiles_m * tiles_n);
  const int first = args.offsets[expert], count = args.offsets[expert + 1] - first;
  if (count == 0 && gemm.accumulate != 0) return;
  const int row0 = tile % tiles_m * kPlainTile, column0 = tile / tiles_m * kPlainTile;
  const T *const a = static_cast<const T*>(gemm.a), *const b = static_cast<const T*>(gemm.b);
  float sum[4][4] = {};
  multiply_plain<false, false>(
      sum, count,
      [&](int row, int64_t k) {
        return row0 + row < gemm.m ? to_float(a[args.a_rows[first + k] * gemm.a_stride + row0 + row]) : 0.0f;
      },
      [&](int64_t k, int column) {
        return column0 + column < gemm.n
                   ? to_float(b[args.b_rows[first + k] * gemm.b_stride + column0 + column])
                   : 0.0f;
      });
  float* const c = static_cast<float*>(gemm.c) + expert * args.expert_stride;
  put_plain(sum, [&](int row, int column, float value) {
    if (row0 + row >= gemm.m || column0 + column >= gemm.n) return;
    float& to = c[(row0 + row) * gemm.c_stride + column0 + column];
    to = (gemm.accumulate != 0 ? to : 0.0f) + value;
  });
}

// Three blocks a multiprocessor bound the registers per thread at 80.
#define STRATA_PRODUCT(NAME, ...)                                \
  extern "C" __global__ void __launch_bounds__(kPlainThreads, 3) \
      NAME(const __grid_constant__ ExpertsArgs args) {           \
    __VA_ARGS__(args);                                           \
  }
STRATA_PRODUCT(expert_product_nt_f32_f32, product_rows<float, true, float>)
STRATA_PRODUCT(expert_product_nn_f32_f32, product_rows<float, false, float>)
STRATA_PRODUCT(expert_product_tn_f32_f32, product_weights<float>)
STRATA_PRODUCT(expert_product_nt_bf16_bf16, product_rows<BF16, true, BF16>)
STRATA_PRODUCT(expert_product_nt_bf16_f32, product_rows<BF16, true, float>)
STRATA_PRODUCT(expert_product_nn_bf16_bf16, product_rows<BF16, false, BF16>)
STRATA_PRODUCT(expert_product_nn_bf16_f32, product_rows<BF16, false, float>)
STRATA_PRODUCT(expert_product_tn_bf16_f32, product_weights<BF16>)

}  // namespace strata::gpu
