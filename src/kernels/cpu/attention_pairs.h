// The products of attention on bf16 operands with fp32 sums. A pair is two neighbouring depths of a product.
// Operands whose columns go down the lanes are packed in panels, [panel][pair][kPairPanel][2], zero-padded to
// whole pairs and vectors; the others are rows of which pairs are broadcast. Weights come as fp32 and are
// rounded here, to nearest, ties to even.
//
// By VDPBF16PS a register tile of 12 rows and 32 columns holds its sums in 24 of 32 registers. A pair of
// depths takes two loads of columns and 12 broadcasts, none of which needs an arithmetic port, for 24
// instructions that do; each sum waits four times as long for its turn as one takes.
//
// By AMX a tile of 16 rows takes 32 depths at once, and up to six tiles hold sums: depths are zero-padded to
// that.
#pragma once

#include "kernels/cpu/attention_tiles.h"
#include "tensor/dtype.h"

namespace strata::cpu::attention {

inline constexpr int64_t kPairPanel = 32;

// Values between panels of so many depths.
constexpr int64_t pair_panel_values(int64_t depths) {
  return align_up(depths, 2) * kPairPanel;
}

template <int64_t kTileRows, int64_t kDepths>
struct Bf16Products {
  static constexpr int64_t kTile = kTileRows;
  static constexpr int64_t kDepth = kDepths;                      // depths are a multiple of it
  static constexpr int64_t kRowDepth = align_up(kRows, kDepths);  // of panels of rows
  using KeyRanges = TileRanges<kTile, kPairPanel>;
  using TileRows = RowRanges<kTile>;

  // scores[r, j] = factor · Σ_c rows[r, c] · keys(c, j) over `columns` columns, a multiple of kDepth, for the
  // panels that a tile of rows sees. Strides count values, of score rows kScoreStride.
  void (*score)(float* scores, const BF16* rows, int64_t row_stride, const BF16* keys, int64_t panel_stride,
                int64_t columns, float factor, const KeyRanges& ranges);
  // sums[r, :] = start + Σ_j weights[r, j] · values(j, :) over the keys that a tile of rows sees and, where
  // these begin or end within kDepth keys, the others of those, whose weight is zero. start: sums[r, :],
  // times factor[r] where there are factors. Panels of values have kKeys depths.
  void (*add_values)(float* sums, int64_t stride, const float* weights, const BF16* values, int64_t columns,
                     const KeyRanges& ranges, const float* factor);
  // sums[j, :] += Σ_r weights[r, j] · rows(r, :) over the rows that see a tile of keys. Weights are zero
  // where a row does not see a key, up to kRows rows and kKeys keys. Panels of rows have kRowDepth depths.
  void (*add_rows)(float* sums, int64_t stride, const float* weights, const BF16* rows, int64_t columns,
                   const TileRows& ranges);
};

struct PairProducts : Bf16Products<12, 2> {};
struct TileProducts : Bf16Products<16, 32> {};

// By the processor's instructions where it has them, else by the model with the same bits.
const PairProducts& pair_products();
const TileProducts& tile_products();
// The one or the other; a native one is null but on x86. Half native: the processor's vectors around the
// model of tiles.
const PairProducts* native_pair_products();
const PairProducts& model_pair_products();
const TileProducts* half_native_tile_products();
const TileProducts& model_tile_products();

}  // namespace strata::cpu::attention
