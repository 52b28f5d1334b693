// Scores of an indexer, tile by tile. Compiled once for every SIMD target: include it after <hwy/foreach_target.h>.
#if defined(STRATA_KERNELS_CPU_INDEXER_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_INDEXER_SCORES_INL_H_
#undef STRATA_KERNELS_CPU_INDEXER_SCORES_INL_H_
#else
#define STRATA_KERNELS_CPU_INDEXER_SCORES_INL_H_
#endif

#include "kernels/cpu/attention_simd-inl.h"
#include "kernels/cpu/indexer.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::indexer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = strata::cpu::attention::HWY_NAMESPACE;
using tiles::F32;
using tiles::kLanes;
using tiles::kPanel;
using tiles::kTile;
using tiles::Vector;

// Keys of the rows of a block, [begin, end) of each, and their union; rows after the last see nothing.
template <int64_t kRows>
struct SeenByRows {
  SeenKeys keys[kRows];
  int64_t begin = 0, end = 0;
  HWY_INLINE SeenByRows(const IndexerShape& s, const IndexerInputs& in, int64_t sequence, int64_t first,
                        int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      keys[r] = seen_keys(s, in, sequence, first + r);
      if (keys[r].count() == 0) continue;
      begin = end == 0 ? keys[r].begin : std::min(begin, keys[r].begin);
      end = std::max(end, keys[r].end);
    }
  }
  // The union of kTile rows from `row` on.
  HWY_INLINE SeenKeys of_tile(int64_t row) const {
    SeenKeys all;
    for (int64_t r = row; r < row + kTile; ++r) {
      if (keys[r].count() == 0) continue;
      all = all.count() == 0 ? keys[r]
                             : SeenKeys{std::min(all.begin, keys[r].begin), std::max(all.end, keys[r].end)};
    }
    return all;
  }
};

// scores[m, j] = Σ_h weights[m, h] relu(q[m, h] · key j) of kTile rows and a panel of kPanel keys. q: head h of row m
// begins at h · head_stride + m · row_stride. keys_t: [size, kPanel].
HWY_INLINE void score_panel(const IndexerShape& s, const float* HWY_RESTRICT q, int64_t row_stride,
                            int64_t head_stride, const float* HWY_RESTRICT keys_t,
                            const float* HWY_RESTRICT weights, float* HWY_RESTRICT scores, int64_t stride) {
  const F32 d;
  for (int64_t h = 0; h < s.heads; ++h) {
    Vector sum[kTile][2];
#pragma GCC unroll 16
    for (int64_t m = 0; m < kTile; ++m) sum[m][0] = sum[m][1] = hn::Zero(d);
    const float* const a = q + h * head_stride;
    for (int64_t c = 0; c < s.size; ++c) {
      const Vector left = hn::LoadU(d, keys_t + c * kPanel),
                   right = hn::LoadU(d, keys_t + c * kPanel + kLanes);
#pragma GCC unroll 16
      for (int64_t m = 0; m < kTile; ++m) {
        const Vector x = hn::Set(d, a[m * row_stride + c]);
        sum[m][0] = hn::MulAdd(x, left, sum[m][0]);
        sum[m][1] = hn::MulAdd(x, right, sum[m][1]);
      }
    }
#pragma GCC unroll 16
    for (int64_t m = 0; m < kTile; ++m) {
      const Vector weight = hn::Set(d, weights[m * s.heads + h]);
      float* const to = scores + m * stride;
      for (int64_t v = 0; v < 2; ++v) {
        // The operand order lets NaN through on x86.
        const Vector positive = hn::Max(hn::Zero(d), sum[m][v]);
        const Vector before = h == 0 ? hn::Zero(d) : hn::LoadU(d, to + v * kLanes);
        hn::StoreU(hn::MulAdd(weight, positive, before), d, to + v * kLanes);
      }
    }
  }
}

// scores[r, key - base] of `rows` rows of a sequence from `first` on, in the panels of keys that each tile of rows sees; base is
// at most seen.begin. Scratch: q [heads, kRows, padded size] with head_stride, weights [kRows, heads], keys_t for kKeys keys,
// scores with score_stride.
template <int64_t kRows, typename Scratch>
HWY_INLINE void score_block(const IndexerShape& s, const IndexerInputs& in, int64_t sequence, int64_t first,
                            int64_t rows, const SeenByRows<kRows>& seen, int64_t base, const Scratch& w) {
  const int64_t row_stride = attention::tile_stride<float>(s.size);
  const int64_t origin = (in.kv_slot != nullptr ? in.kv_slot[sequence] : sequence) * s.kv_batch_stride;
  for (int64_t h = 0; h < s.heads; ++h)
    tiles::pack_rows(w.q + h * w.head_stride, row_stride, in.q, s.dtype, (first * s.heads + h) * s.size,
                     s.heads * s.size, rows, kRows, s.size, 1.0f);
  for (int64_t i = 0; i < kRows * s.heads; ++i)
    w.weights[i] = i < rows * s.heads ? s.scale * in.weights[first * s.heads + i] : 0.0f;
  for (int64_t block = base; block < seen.end; block += attention::kKeys) {
    const int64_t keys = std::min(attention::kKeys, seen.end - block);
    tiles::pack_transposed(w.keys_t, in.k, s.dtype, origin + block * s.size, s.size, keys, s.size);
    for (int64_t row = 0; row < rows; row += kTile) {
      const SeenKeys of_tile = seen.of_tile(row);
      for (int64_t j = 0; j < keys; j += kPanel) {
        if (block + j >= of_tile.end || block + j + kPanel <= of_tile.begin) continue;
        score_panel(s, w.q + row * row_stride, row_stride, w.head_stride, w.keys_t + j * s.size,
                    w.weights + row * s.heads, w.scores + row * w.score_stride + block - base + j,
                    w.score_stride);
      }
    }
  }
}

}  // namespace strata::cpu::indexer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
