// Grouped GEMMs of a mixture of experts in bf16. Rows are read in place through lists that sort them by
// expert (experts_sort.cu), which saves a pass over the rows.
#include "kernels/gpu/gemm.cuh"

namespace strata::gpu {

// An operand whose rows, along its outer axis, are list[first], list[first + 1], …
template <int kOuter, int kThreads>
struct ListedRows {
  static constexpr int kChunks = kGemmDepth / 8, kRowsAtOnce = kThreads / kChunks,
                       kSteps = kOuter / kRowsAtOnce;

  const BF16* matrix;
  int64_t stride;
  uint32_t place;
  int depth_at = 0, rows[kSteps];  // -1: beyond the list

  __device__ ListedRows(const void* matrix_, int64_t stride_, const int32_t* list, int count)
      : matrix(static_cast<const BF16*>(matrix_)),
        stride(stride_),
        place(TileRows<kChunks>::at(row(), chunk())) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = row() + step * kRowsAtOnce;
      rows[step] = at < count ? list[at] : -1;
    }
  }
  static __device__ __forceinline__ int row() {
    return static_cast<int>(threadIdx.x) / kChunks;
  }
  static __device__ __forceinline__ int chunk() {
    return static_cast<int>(threadIdx.x) % kChunks;
  }
  __device__ __forceinline__ bool whole() const {
    return false;
  }

  template <bool kWhole>
  __device__ __forceinline__ void copy(uint32_t to, int depth) {
    const int count = min(8, max(0, depth - chunk() * 8));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool inside = rows[step] >= 0 && count > 0;
      const BF16* at = matrix + rows[step] * stride + depth_at + chunk() * 8;
      copy_async(to + place + step * kRowsAtOnce * TileRows<kChunks>::kPitch, inside ? at : matrix,
                 inside ? count * 2 : 0);
    }
    depth_at += kGemmDepth;
  }
};

// An operand whose listed rows are along the depth: the rows of the next stage are looked up while this one
// is copied. Lane `step` of those that copy the same rows has the row of that step.
template <int kOuter, int kThreads>
struct ListedDepth {
  static constexpr int kChunks = kOuter / 8, kRowsAtOnce = kThreads / kChunks,
                       kSteps = kGemmDepth / kRowsAtOnce;

  const BF16* matrix;
  int64_t stride;
  const int32_t* list;
  uint32_t place;
  int next, end, outer;  // of this lane in the list, of the list
  int row_of_step;       // -1: beyond the list
  static_assert(kChunks <= kWarp && kSteps <= kChunks);

  __device__ ListedDepth(const void* matrix_, int64_t stride_, const int32_t* list_, int begin, int end_,
                         int first, int outer_size)
      : matrix(static_cast<const BF16*>(matrix_) + first),
        stride(stride_),
        list(list_),
        place(TileRows<kChunks>::at(row(), chunk())),
        next(begin + row() + chunk() % kSteps * kRowsAtOnce),
        end(end_),
        outer(min(8, max(0, outer_size - first - chunk() * 8))) {
    look_up();
  }
  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / kChunks; }
  static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ __forceinline__ bool whole() const { return false; }
  __device__ __forceinline__ void look_up() {
    row_of_step = next < end ? list[next] : -1;
    next += kGemmDepth;
  }

  template <bool kWhole>
  __device__ __forceinline__ void copy(uint32_t to, int) {
#pragma unroll 4
    for (int step = 0; step < kSteps; ++step) {
      const int listed =
          shuffle_from(row_of_step, static_cast<int>(threadIdx.x) % kWarp / kChunks * kChunks + step);
      const bool inside = listed >= 0 && outer > 0;
      const BF16* at = matrix + listed * stride + chunk() * 8;
      copy_async(to + place + step * kRowsAtOnce * TileRows<kChunks>::kPitch, inside ? at : matrix,
                 inside ? outer * 2 : 0);
    }
    look_up();
  }
};

template <bool kRightInner, typename Out>
__device__ __forceinline__ void experts_rows(const ExpertsArgs& args) {
  using Tile = PlainTile;
  int tile, column;
  tile_of<8>(static_cast<int>(blockIdx.x), args.tile_count, (args.gemm.n + Tile::kN - 1) / Tile::kN, &tile,
             &column);
  column *= Tile::kN;
  const int2 place = *reinterpret_cast<const int2*>(args.tiles + 2 * tile);
  const int expert = place.x, first = place.y;
  if (expert < 0) return;
  GemmArgs gemm = args.gemm;
  gemm.m = min(Tile::kM, args.offsets[expert + 1] - first);
  ListedRows<Tile::kM, Tile::kThreads> a(gemm.a, gemm.a_stride, args.a_rows + first, gemm.m);
  const bool real = expert < args.experts;
  GemmOperand<kRightInner, Tile::kN, Tile::kThreads, true> b(
      static_cast<const BF16*>(gemm.b) + (real ? expert * args.expert_stride : 0), gemm.b_stride, column,
      gemm.n, 0);
  float sum[4][8][4] = {};
  multiply_tile<Tile, true, kRightInner>(sum, a, b, real ? gemm.k : 0);
  put_tile<Tile>(GemmOutput<Out>(gemm, 0, args.c_rows + first), 0, column, sum);
}

__device__ __forceinline__ void experts_weights(const ExpertsArgs& args) {
  using Tile = PlainTile;
  GemmArgs gemm = args.gemm;
  const int tiles_m = (gemm.m + Tile::kM - 1) / Tile::kM, tiles_n = (gemm.n + Tile::kN - 1) / Tile::kN;
  const int expert = static_cast<int>(blockIdx.x) / (tiles_m * tiles_n), first = args.offsets[expert],
            count = args.offsets[expert + 1] - first;
  if (count == 0 && gemm.accumulate != 0) return;
  int row, column;
  tile_of<8>(static_cast<int>(blockIdx.x) % (tiles_m * tiles_n), tiles_m, tiles_n, &row, &column);
  row *= Tile::kM, column *= Tile::kN;
  ListedDepth<Tile::kM, Tile::kThreads> a(gemm.a, gemm.a_stride, args.a_rows, first, first + count, row,
                                          gemm.m);
  ListedDepth<Tile::kN, Tile::kThreads> b(gemm.b, gemm.b_stride, args.b_rows, first, first + count, column,
                                          gemm.n);
  gemm.c = static_cast<float*>(gemm.c) + expert * args.expert_stride;
  float sum[4][8][4] = {};
  multiply_tile<Tile, false, false>(sum, a, b, count);
  put_tile<Tile>(GemmOutput<float>(gemm, 0), row, column, sum);
}

#define STRATA_EXPERTS(NAME, ...)                                   \
  extern "C" __global__ void __launch_bounds__(PlainTile::kThreads) \
      NAME(const __grid_constant__ ExpertsArgs args) {              \
    __VA_ARGS__(args);                                              \
  }
STRATA_EXPERTS(experts_nt_bf16, experts_rows<true, BF16>)
STRATA_EXPERTS(experts_nt_f32, experts_rows<true, float>)
STRATA_EXPERTS(experts_nn_bf16, experts_rows<false, BF16>)
STRATA_EXPERTS(experts_nn_f32, experts_rows<false, float>)
STRATA_EXPERTS(experts_tn_f32, experts_weights)

}  // namespace strata::gpu
