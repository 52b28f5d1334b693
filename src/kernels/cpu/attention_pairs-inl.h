// VDPBF16PS kernels of attention. Compiled for the instruction and for its model by for_each_bf16_target.h.
#include "kernels/cpu/bf16_round-inl.h"

namespace strata::cpu::STRATA_BF16_TARGET::attention_pairs {

using attention::kKeys, attention::kPairPanel, attention::kRows, attention::kScoreStride;
using attention::PairProducts, attention::Start;
using PairRanges = PairProducts::KeyRanges;
using PairRowRanges = PairProducts::TileRows;

inline constexpr int64_t kPairTile = PairProducts::kTile;

// One register tile over `pairs` pairs in ascending order: c[m, :] = start + Σ a(m) · b. With start zero the
// sum is multiplied by factor[0]; kScaledSum starts from factor[m] · c[m, :]. The pair of row m is at a + m ·
// lda + 2 · pair, or at a + pair · lda + 2 · m if kDown.
template <int kVectors, bool kDown, Start kStart>
STRATA_BF16_INLINE void multiply_tile(int64_t pairs, const BF16* a, int64_t lda, const BF16* b, float* c,
                                      int64_t ldc, const float* factor) {
  Sums sums[kPairTile][kVectors];
#pragma GCC unroll 16
  for (int64_t m = 0; m < kPairTile; ++m) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
      if constexpr (kStart == Start::kZero) {
        sums[m][v] = no_sums();
      } else {
        sums[m][v] = load_sums(c + m * ldc + v * kLanes);
        if constexpr (kStart == Start::kScaledSum) sums[m][v] = product(sums[m][v], all_of(factor[m]));
      }
    }
  }
  for (int64_t p = 0; p < pairs; ++p) {
    Pairs columns[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) columns[v] = load_pairs(b + v * kValues);
    b += 2 * kPairPanel;
#pragma GCC unroll 16
    for (int64_t m = 0; m < kPairTile; ++m) {
      const Pairs row = same_pair(kDown ? a + p * lda + 2 * m : a + m * lda + 2 * p);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) sums[m][v] = dot(sums[m][v], row, columns[v]);
    }
  }
#pragma GCC unroll 16
  for (int64_t m = 0; m < kPairTile; ++m) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
      if constexpr (kStart == Start::kZero) sums[m][v] = product(sums[m][v], all_of(*factor));
      store_sums(c + m * ldc + v * kLanes, sums[m][v]);
    }
  }
}

// Calls multiply_tile for all columns, a panel of two vectors at a time; the last panel may have only one.
template <bool kDown, Start kStart>
void multiply_panels(int64_t columns, int64_t panel_stride, int64_t pairs, const BF16* a, int64_t lda,
                     const BF16* b, float* c, int64_t ldc, const float* factor) {
  for (int64_t first = 0; first < columns; first += kPairPanel) {
    if (first + kLanes < columns) {
      multiply_tile<2, kDown, kStart>(pairs, a, lda, b, c + first, ldc, factor);
    } else {
      multiply_tile<1, kDown, kStart>(pairs, a, lda, b, c + first, ldc, factor);
    }
    b += panel_stride;
  }
}

// A panel of keys stays in the L1 cache while all tiles of rows use it.
inline void score(float* scores, const BF16* rows, int64_t row_stride, const BF16* keys, int64_t panel_stride,
                  int64_t columns, float factor, const PairRanges& ranges) {
  for (int64_t key = 0; key < kKeys; key += kPairPanel) {
    for (int64_t t = 0; t < PairRanges::kTiles; ++t) {
      if (!ranges.sees(t, key)) continue;
      multiply_tile<2, false, Start::kZero>(
          columns / 2, rows + t * kPairTile * row_stride, row_stride, keys + key / kPairPanel * panel_stride,
          scores + t * kPairTile * kScoreStride + key, kScoreStride, &factor);
    }
  }
}

// The weights of a tile of rows stay in the L1 cache while all columns use them.
inline void add_values(float* sums, int64_t stride, const float* weights, const BF16* values, int64_t columns,
                       const PairRanges& ranges, const float* factor) {
  alignas(64) BF16 rounded_weights[kPairTile * kKeys];
  for (int64_t t = 0; t < PairRanges::kTiles; ++t) {
    const int64_t begin = ranges.panel_begin(t), end = ranges.panel_end(t);
    if (begin == end) continue;
    for (int64_t m = 0; m < kPairTile; ++m) {
      const float* const row = weights + (t * kPairTile + m) * kScoreStride;
      for (int64_t j = begin; j < end; j += kPairPanel)
        round_in_order(rounded_weights + m * kKeys + j, row + j, row + j + kLanes);
    }
    const int64_t first = ranges.begin[t] / 2;
    const int64_t pairs = (ranges.end[t] + 1) / 2 - first;
    const BF16* const a = rounded_weights + 2 * first;
    const BF16* const b = values + first * 2 * kPairPanel;
    float* const c = sums + t * kPairTile * stride;
    constexpr int64_t kPanel = attention::pair_panel_values(kKeys);
    if (factor != nullptr) {
      multiply_panels<false, Start::kScaledSum>(columns, kPanel, pairs, a, kKeys, b, c, stride,
                                                factor + t * kPairTile);
    } else {
      multiply_panels<false, Start::kSum>(columns, kPanel, pairs, a, kKeys, b, c, stride, nullptr);
    }
  }
}

inline void add_rows(float* sums, int64_t stride, const float* weights, const BF16* rows, int64_t columns,
                     const PairRowRanges& ranges) {
  alignas(64) BF16 pairs[kRows * kKeys];  // [pair of rows][key][2]
  const int64_t keys = align_up(ranges.tiles * kPairTile, kLanes);
  for (int64_t r = 0; r < kRows; r += 2) {
    const float* const row = weights + r * kScoreStride;
    for (int64_t j = 0; j < keys; j += kLanes)
      round_to_pairs(pairs + r * kKeys + 2 * j, row + j, row + kScoreStride + j);
  }
  for (int64_t t = 0; t < ranges.tiles; ++t) {
    if (ranges.begin[t] >= ranges.end[t]) continue;
    const int64_t first = ranges.begin[t] / 2, count = (ranges.end[t] + 1) / 2 - first;
    multiply_panels<true, Start::kSum>(columns, attention::pair_panel_values(PairProducts::kRowDepth), count,
                                       pairs + first * 2 * kKeys + 2 * t * kPairTile, 2 * kKeys,
                                       rows + first * 2 * kPairPanel, sums + t * kPairTile * stride, stride,
                                       nullptr);
  }
}

inline constexpr attention::PairProducts kProducts{{score, add_values, add_rows}};

}  // namespace strata::cpu::STRATA_BF16_TARGET::attention_pairs
