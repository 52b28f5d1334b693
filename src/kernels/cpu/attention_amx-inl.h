// AMX kernels of attention. Compiled by for_each_bf16_target.h for processors with AMX, and in plain C++.
// Tiles: the class of amx.h that multiplies.
#include "kernels/cpu/bf16_round-inl.h"

namespace strata::cpu::STRATA_BF16_TARGET::attention_amx {

using attention::kKeys, attention::kPairPanel, attention::kRows, attention::kScoreStride,
    attention::TileProducts;
using detail::kTileBytes, detail::kTileDepth, detail::kTileRows, detail::kTileSums;

// Tile registers: sums, and the last two for the operands.
inline constexpr int kMostSums = 6, kA = 6, kB = 7;
// Bytes between rows of a tile in a panel; values between adjacent tiles.
inline constexpr int64_t kPanelBytes = 2 * kPairPanel * 2;
inline constexpr int64_t kTileStep = 2 * kTileSums;

STRATA_BF16_INLINE void scale_row(float* row, int64_t columns, float factor) {
  for (int64_t c = 0; c < columns; c += kLanes)
    store_sums(row + c, product(load_sums(row + c), all_of(factor)));
}

// Scores of kCount consecutive tiles of rows with the two tiles of a panel of keys: register 2 t + v holds
// tile t of rows and tile v of keys.
template <int kCount, int kRow = 0, typename Tiles>
STRATA_BF16_INLINE void clear_scores(Tiles& tiles) {
  if constexpr (kRow < kCount) {
    tiles.template zero<2 * kRow>();
    tiles.template zero<2 * kRow + 1>();
    clear_scores<kCount, kRow + 1>(tiles);
  }
}
template <int kCount, int kKey, int kRow = 0, typename Tiles>
STRATA_BF16_INLINE void multiply_rows(Tiles& tiles, const BF16* rows, int64_t stride) {
  if constexpr (kRow < kCount) {
    tiles.template load<kA>(rows, stride * 2);
    tiles.template dot<2 * kRow + kKey, kA, kB>();
    multiply_rows<kCount, kKey, kRow + 1>(tiles, rows + kTileRows * stride, stride);
  }
}
template <int kCount, int kRow = 0, typename Tiles>
STRATA_BF16_INLINE void store_scores(Tiles& tiles, float* scores) {
  if constexpr (kRow < kCount) {
    tiles.template store<2 * kRow>(scores, kScoreStride * 4);
    tiles.template store<2 * kRow + 1>(scores + kTileSums, kScoreStride * 4);
    store_scores<kCount, kRow + 1>(tiles, scores + kTileRows * kScoreStride);
  }
}
template <int kCount, typename Tiles>
void score_panel(Tiles& tiles, float* scores, const BF16* rows, int64_t row_stride, const BF16* keys,
                 int64_t columns, float factor) {
  clear_scores<kCount>(tiles);
  for (int64_t c = 0; c < columns; c += kTileDepth) {
    tiles.template load<kB>(keys + c * kPairPanel, kPanelBytes);
    multiply_rows<kCount, 0>(tiles, rows + c, row_stride);
    tiles.template load<kB>(keys + c * kPairPanel + kTileStep, kPanelBytes);
    multiply_rows<kCount, 1>(tiles, rows + c, row_stride);
  }
  store_scores<kCount>(tiles, scores);
  for (int64_t r = 0; r < kCount * kTileRows; ++r) scale_row(scores + r * kScoreStride, kPairPanel, factor);
}

template <typename Tiles>
void score(float* scores, const BF16* rows, int64_t row_stride, const BF16* keys, int64_t panel_stride,
           int64_t columns, float factor, const TileProducts::KeyRanges& ranges) {
  constexpr int64_t kTiles = TileProducts::KeyRanges::kTiles;
  static_assert(2 * kTiles == kMostSums);
  Tiles tiles;
  for (int64_t key = 0; key < kKeys; key += kPairPanel, keys += panel_stride) {
    // From the first to the last tile of rows that sees the panel; tiles in between may be computed
    // needlessly.
    int64_t first = 0, end = kTiles;
    while (first < end && !ranges.sees(first, key)) ++first;
    while (end > first && !ranges.sees(end - 1, key)) --end;
    float* const to = scores + first * kTileRows * kScoreStride + key;
    const BF16* const from = rows + first * kTileRows * row_stride;
    if (end - first == 3) score_panel<3>(tiles, to, from, row_stride, keys, columns, factor);
    if (end - first == 2) score_panel<2>(tiles, to, from, row_stride, keys, columns, factor);
    if (end - first == 1) score_panel<1>(tiles, to, from, row_stride, keys, columns, factor);
  }
}

// sums += a · b for a tile of rows by kCount tiles of columns, over the depths [begin, end). Panels of b are
// `panel` values apart.
template <int kCount, int kColumn = 0, typename Tiles>
STRATA_BF16_INLINE void load_sums_of(Tiles& tiles, const float* sums, int64_t stride) {
  if constexpr (kColumn < kCount) {
    tiles.template load<kColumn>(sums + kColumn * kTileSums, stride * 4);
    load_sums_of<kCount, kColumn + 1>(tiles, sums, stride);
  }
}
template <int kCount, int kColumn = 0, typename Tiles>
STRATA_BF16_INLINE void store_sums_of(Tiles& tiles, float* sums, int64_t stride) {
  if constexpr (kColumn < kCount) {
    tiles.template store<kColumn>(sums + kColumn * kTileSums, stride * 4);
    store_sums_of<kCount, kColumn + 1>(tiles, sums, stride);
  }
}
template <int kCount, int kColumn = 0, typename Tiles>
STRATA_BF16_INLINE void multiply_columns(Tiles& tiles, const BF16* b, int64_t panel) {
  if constexpr (kColumn < kCount) {
    tiles.template load<kB>(b + kColumn / 2 * panel + kColumn % 2 * kTileStep, kPanelBytes);
    tiles.template dot<kColumn, kA, kB>();
    multiply_columns<kCount, kColumn + 1>(tiles, b, panel);
  }
}
template <int kCount, typename Tiles>
void add_tiles(Tiles& tiles, float* sums, int64_t stride, const BF16* a, int64_t a_stride, const BF16* b,
               int64_t panel, int64_t begin, int64_t end) {
  load_sums_of<kCount>(tiles, sums, stride);
  for (int64_t k = begin; k < end; k += kTileDepth) {
    tiles.template load<kA>(a + k, a_stride * 2);
    multiply_columns<kCount>(tiles, b + k * kPairPanel, panel);
  }
  store_sums_of<kCount>(tiles, sums, stride);
}

// Calls add_tiles for all columns, four tiles at a time: enough sums to hide the latency of a tile
// multiplication.
template <typename Tiles>
void add_columns(Tiles& tiles, float* sums, int64_t stride, const BF16* a, int64_t a_stride, const BF16* b,
                 int64_t panel, int64_t begin, int64_t end, int64_t columns) {
  constexpr int64_t kStep = 4 * kTileSums;
  for (int64_t c = 0; c < columns; c += kStep, sums += kStep, b += 2 * panel) {
    const int64_t count = std::min<int64_t>(4, (columns - c + kTileSums - 1) / kTileSums);
    if (count == 4) add_tiles<4>(tiles, sums, stride, a, a_stride, b, panel, begin, end);
    if (count == 3) add_tiles<3>(tiles, sums, stride, a, a_stride, b, panel, begin, end);
    if (count == 2) add_tiles<2>(tiles, sums, stride, a, a_stride, b, panel, begin, end);
    if (count == 1) add_tiles<1>(tiles, sums, stride, a, a_stride, b, panel, begin, end);
  }
}

template <typename Tiles>
void add_values(float* sums, int64_t stride, const float* weights, const BF16* values, int64_t columns,
                const TileProducts::KeyRanges& ranges, const float* factor) {
  alignas(64) BF16 rounded[kTileRows * kKeys];
  Tiles tiles;
  for (int64_t t = 0; t < TileProducts::KeyRanges::kTiles; ++t) {
    const int64_t begin = ranges.panel_begin(t), end = ranges.panel_end(t);
    if (begin == end) continue;
    float* const to = sums + t * kTileRows * stride;
    for (int64_t m = 0; m < kTileRows; ++m) {
      const float* const row = weights + (t * kTileRows + m) * kScoreStride;
      for (int64_t j = begin; j < end; j += kPairPanel)
        round_in_order(rounded + m * kKeys + j, row + j, row + j + kLanes);
      if (factor != nullptr) scale_row(to + m * stride, columns, factor[t * kTileRows + m]);
    }
    add_columns(tiles, to, stride, rounded, kKeys, values, attention::pair_panel_values(kKeys), begin, end,
                columns);
  }
}

template <typename Tiles>
void add_rows(float* sums, int64_t stride, const float* weights, const BF16* rows, int64_t columns,
              const TileProducts::TileRows& ranges) {
  constexpr int64_t kDepth = TileProducts::kRowDepth;
  // Rows for 16 keys in VNNI layout, and their transpose, one row per key.
  alignas(64) BF16 down[kDepth * kTileRows];
  alignas(64) BF16 across[kTileRows * kDepth];
  std::memset(static_cast<void*>(down), 0, sizeof down);
  Tiles tiles;
  for (int64_t t = 0; t < ranges.tiles; ++t) {
    if (ranges.begin[t] >= ranges.end[t]) continue;
    const int64_t begin = ranges.begin[t] / kTileDepth * kTileDepth,
                  end = align_up(ranges.end[t], kTileDepth);
    const float* const from = weights + t * kTileRows;
    for (int64_t r = begin; r < std::min(end, kRows); r += 2)
      round_to_pairs(down + r * kTileRows, from + r * kScoreStride, from + (r + 1) * kScoreStride);
    for (int64_t r = begin; r < end; r += kTileDepth)
      transpose_pairs(across + r, kDepth, down + r * kTileRows);
    add_columns(tiles, sums + t * kTileRows * stride, stride, across, kDepth, rows,
                attention::pair_panel_values(kDepth), begin, end, columns);
  }
}

template <typename Tiles>
inline constexpr TileProducts kProducts{{score<Tiles>, add_values<Tiles>, add_rows<Tiles>}};

}  // namespace strata::cpu::STRATA_BF16_TARGET::attention_amx
