// The products of attention on bf16 operands with fp32 sums. A pair is two neighbouring depths of a product.
// Operands whose columns go down the lanes are packed in panels, [panel][pair][kPairPanel][2], zero-padded to
// whole pairs and vectors; the others are rows of which pairs are broadcast. Weights come as fp32 and are
// rounded here, to nearest, ties to even.
//
// By VDPBF16PS: a register tile of 12 rows and 32 columns holds its sums in 24 of 32 registers. A pair of
// depths takes two loads of columns and 12 broadcasts, none of which needs an arithmetic port, for 24
// instructions that do; each sum waits four times as long for its turn as one takes.
#pragma once

#include "kernels/cpu/attention_tiles.h"
#include "tensor/dtype.h"

namespace strata::cpu::attention {

inline constexpr int64_t kPairTile = 12;
inline constexpr int64_t kPairPanel = 32;
using PairRanges = TileRanges<kPairTile, kPairPanel>;
using PairRowRanges = RowRanges<kPairTile>;

// Values between panels of so many depths.
constexpr int64_t pair_panel_values(int64_t depths) {
  return align_up(depths, 2) * kPairPanel;
}

struct PairProducts {
  // scores[r, j] = factor · Σ_c rows[r, c] · keys(c, j) over `columns` columns, an even number, for the
  // panels that a tile of rows sees. Strides count values, of score rows kScoreStride.
  void (*score)(float* scores, const BF16* rows, int64_t row_stride, const BF16* keys, int64_t panel_stride,
                int64_t columns, float factor, const PairRanges& ranges);
  // sums[r, :] = start + Σ_j weights[r, j] · values(j, :) over the keys that a tile of rows sees and, where
  // these begin or end within a pair, its other key, whose weight is zero. start: sums[r, :], times factor[r]
  // where there are factors. Panels of values have kKeys depths.
  void (*add_values)(float* sums, int64_t stride, const float* weights, const BF16* values, int64_t columns,
                     const PairRanges& ranges, const float* factor);
  // sums[j, :] += Σ_r weights[r, j] · rows(r, :) over the rows that see a tile of keys. Weights are zero
  // where a row does not see a key, up to kRows rows and kKeys keys. Panels of rows have kRows depths.
  void (*add_rows)(float* sums, int64_t stride, const float* weights, const BF16* rows, int64_t columns,
                   const PairRowRanges& ranges);
};

// By the processor's instruction where it has it, else by the model with the same bits.
const PairProducts& pair_products();
// The one or the other. There is no native one but for x86.
const PairProducts* native_pair_products();
const PairProducts& model_pair_products();

}  // namespace strata::cpu::attention
