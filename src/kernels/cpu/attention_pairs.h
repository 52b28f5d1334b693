// Attention's matmuls of bf16 operands with fp32 sums. A pair is two adjacent depths of a matmul. Operands
// whose columns fill the lanes are packed in VNNI panels, [panel][pair][kPairPanel][2], zero-padded to whole
// pairs and vectors. The other operands are rows, of which pairs are broadcast. Weights are fp32 and are
// rounded here, to nearest, ties to even.
//
// With VDPBF16PS, a register tile of 12 rows and 32 columns keeps its sums in 24 of 32 registers. A pair of
// depths takes 24 of these instructions, two loads of columns and 12 broadcasts, which need no arithmetic
// port. Each sum is updated a fourth as often as the latency of the instruction would allow.
//
// With AMX, a tile of 16 rows takes 32 depths at a time and up to six tiles hold sums; depths are zero-padded
// to a multiple of 32.
#pragma once

#include "kernels/cpu/attention_tiles.h"
#include "tensor/dtype.h"

namespace strata::cpu::attention {

inline constexpr int64_t kPairPanel = 32;

// Values from panel to panel, for panels of `depths` depths.
constexpr int64_t pair_panel_values(int64_t depths) {
  return align_up(depths, 2) * kPairPanel;
}

template <int64_t kTileRows, int64_t kDepths>
struct Bf16Products {
  static constexpr int64_t kTile = kTileRows;
  static constexpr int64_t kDepth = kDepths;                      // depths are padded to a multiple
  static constexpr int64_t kRowDepth = align_up(kRows, kDepths);  // depth of panels of rows
  using KeyRanges = TileRanges<kTile, kPairPanel>;
  using TileRows = RowRanges<kTile>;

  // scores[r, j] = factor · Σ_c rows[r, c] · keys(c, j) over `columns` columns, a multiple of kDepth, for the
  // panels that a tile of rows sees. Strides are in values; score rows are kScoreStride apart.
  void (*score)(float* scores, const BF16* rows, int64_t row_stride, const BF16* keys, int64_t panel_stride,
                int64_t columns, float factor, const KeyRanges& ranges);
  // sums[r, :] = start + Σ_j weights[r, j] · values(j, :) over the keys that a tile of rows sees, rounded
  // outwards to multiples of kDepth; the additional keys have weight zero. start: sums[r, :], times factor[r]
  // unless factor is null. Panels of values have kKeys depths.
  void (*add_values)(float* sums, int64_t stride, const float* weights, const BF16* values, int64_t columns,
                     const KeyRanges& ranges, const float* factor);
  // sums[j, :] += Σ_r weights[r, j] · rows(r, :) over the rows that see a tile of keys. Weights must be zero
  // if a row does not see a key, up to kRows rows and kKeys keys. Panels of rows have kRowDepth depths.
  void (*add_rows)(float* sums, int64_t stride, const float* weights, const BF16* rows, int64_t columns,
                   const TileRows& ranges);
};

struct PairProducts : Bf16Products<12, 2> {};
struct TileProducts : Bf16Products<16, 32> {};

// Kernels for the processor's instructions if it has them, otherwise the models with the same bits.
const PairProducts& pair_products();
const TileProducts& tile_products();
// The native kernels, null except on x86, and the models. Half native: native vectors with the model of
// tiles.
const PairProducts* native_pair_products();
const PairProducts& model_pair_products();
const TileProducts* half_native_tile_products();
const TileProducts& model_tile_products();

}  // namespace strata::cpu::attention
