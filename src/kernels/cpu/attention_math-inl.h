// Packing and multiplication of attention's tiles: in fp32, or by bf16 dot products with fp32 sums if the
// processor has them. A pass takes one of the two as a parameter and calls its functions by purpose. Compiled
// once for every SIMD target.
#if defined(STRATA_KERNELS_CPU_ATTENTION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_ATTENTION_MATH_INL_H_
#undef STRATA_KERNELS_CPU_ATTENTION_MATH_INL_H_
#else
#define STRATA_KERNELS_CPU_ATTENTION_MATH_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::attention::HWY_NAMESPACE {

inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// Rows of a call's operand: `count` rows of `dim` elements, from element `offset` on.
struct Rows {
  const void* data;
  int64_t offset, stride, count, dim;
};

// Scores are q · k times scale · log2 e; queries are packed with this factor. For sums over rows, keys are
// packed times scale, so the sums for dq are right and those for dk lack the factor ln 2.
struct FloatMath {
  using Packed = float;
  using KeyRanges = Ranges;
  using TileRows = RowRanges<kTile>;
  static constexpr int64_t kTileRows = kTile;

  const AttentionShape& shape;
  explicit FloatMath(const Call& call) : shape(call.shape) {}

  static int64_t row_stride(int64_t dim) { return tile_stride<float>(dim); }
  float dq_factor() const { return 1.0f; }
  float dk_factor() const { return kLn2; }

  // Rows of a block, zero-padded to kRows.
  void pack_queries(float* to, const Rows& from) const { pack(to, from, kRows, shape.scale * kLog2e); }
  void pack_dout(float* to, const Rows& from) const { pack(to, from, kRows, 1.0f); }
  // The other operand of a matmul with such rows, summed over the elements of a head.
  void pack_across(float* to, const Rows& from) const {
    pack_transposed(to, from.data, shape.dtype, from.offset, from.stride, from.count, from.dim);
  }
  // The other operand of a matmul with weights, summed over keys or over rows.
  void pack_values(float* to, const Rows& from) const { pack(to, from, from.count, 1.0f); }
  void pack_keys(float* to, const Rows& from) const { pack(to, from, from.count, shape.scale); }
  void pack_rows_down(float*, const Rows&) const {}  // used unpacked

  void query_scores(float* scores, const float* queries, const float* keys, int64_t count, int64_t dim,
                    const Ranges& ranges) const {
    score_tiles(scores, queries, row_stride(dim), keys, count, dim, ranges);
  }
  void dout_scores(float* scores, const float* dout, const float* values, int64_t count, int64_t dim,
                   const Ranges& ranges) const {
    score_tiles(scores, dout, row_stride(dim), values, count, dim, ranges);
  }
  template <Start kStart>
  HWY_INLINE void add_down(float* sums, int64_t stride, const float* weights, const float* values,
                           int64_t dim, const Ranges& ranges, const float* factor) const {
    add_values<kStart>(sums, stride, weights, values, row_stride(dim), align_up(dim, kLanes), ranges, factor);
  }
  void add_rows_down(float* sums, const float* weights, const float* rows, int64_t dim,
                     const TileRows& ranges) const {
    add_rows(sums, row_stride(dim), weights, rows, align_up(dim, kLanes), ranges);
  }

 private:
  void pack(float* to, const Rows& from, int64_t all, float factor) const {
    pack_rows(to, row_stride(from.dim), from.data, shape.dtype, from.offset, from.stride, from.count, all,
              from.dim, factor);
  }
};

// Packs VNNI panels over the elements of a head, zero-padded to whole panels of keys.
inline HWY_NOINLINE void pack_pairs_across(BF16* HWY_RESTRICT dst, const BF16* HWY_RESTRICT src,
                                           int64_t stride, int64_t keys, int64_t dim) {
  const int64_t padded = padded_columns<BF16>(dim);
  for (int64_t first = 0; first < align_up(keys, kPairPanel); first += kLanes) {
    BF16* to = dst + first / kPairPanel * pair_panel_values(padded) + first % kPairPanel * 2;
    const BF16* from = src + first * stride;
    int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    if (first + kLanes <= keys) {
      for (; c + 8 <= dim; c += 8) {
        const FourColumns four = transposed<true>(from + c, stride);
        for (int64_t i = 0; i < 4; ++i)
          hn::StoreU(four.column[i], F32(), reinterpret_cast<float*>(to + (c / 2 + i) * 2 * kPairPanel));
      }
    }
#endif
    for (; c < padded; ++c) {
      for (int64_t key = 0; key < kLanes; ++key) {
        to[c / 2 * 2 * kPairPanel + 2 * key + c % 2] =
            first + key < keys && c < dim ? from[key * stride + c] : BF16();
      }
    }
  }
}

// Packs VNNI panels over rows, for a block of `depths` rows; zero-padded to a multiple of `unit` rows.
inline HWY_NOINLINE void pack_pairs_down(BF16* HWY_RESTRICT dst, const BF16* HWY_RESTRICT src, int64_t stride,
                                         int64_t rows, int64_t dim, int64_t depths, int64_t unit) {
  const U32 d;
  const int64_t padded = padded_columns<BF16>(dim);
  for (int64_t r = 0; r < align_up(rows, unit); r += 2) {
    const auto at = [&](int64_t c) {
      return dst + c / kPairPanel * pair_panel_values(depths) + r * kPairPanel + c % kPairPanel * 2;
    };
    if (r >= rows) {
      for (int64_t c = 0; c < padded; c += kPairPanel) std::fill_n(at(c), 2 * kPairPanel, BF16());
      continue;
    }
    const BF16* const from = src + r * stride;
    const bool whole = r + 1 < rows;
    const auto words = [&](const BF16* p) HWY_ATTR {
      return hn::PromoteTo(d, hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p)));
    };
    // Strided rows are beyond the hardware prefetcher.
    for (int64_t line = 0; line < dim; line += 32)
      hwy::Prefetch(src + std::min(r + 6, rows - 1) * stride + line);
    int64_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) {
      auto word = words(from + c);
      if (whole) word = hn::Or(word, hn::ShiftLeft<16>(words(from + stride + c)));
      hn::StoreU(word, d, reinterpret_cast<uint32_t*>(at(c)));
    }
    for (; c < padded; ++c) {
      at(c)[0] = c < dim ? from[c] : BF16();
      at(c)[1] = c < dim && whole ? from[stride + c] : BF16();
    }
  }
}

// Nothing is scaled before rounding: scores are scaled as they are computed, dq and dk at the end.
template <typename Products>
struct Bf16Math {
  using Packed = BF16;
  using KeyRanges = typename Products::KeyRanges;
  using TileRows = typename Products::TileRows;
  static constexpr int64_t kTileRows = Products::kTile;

  const AttentionShape& shape;
  const Products& products;
  Bf16Math(const Call& call, const Products& of_call) : shape(call.shape), products(of_call) {}

  static int64_t row_stride(int64_t dim) { return tile_stride<BF16>(dim); }
  float dq_factor() const { return shape.scale; }
  float dk_factor() const { return shape.scale; }

  void pack_queries(BF16* to, const Rows& from) const {
    const auto* const data = static_cast<const BF16*>(from.data) + from.offset;
    const int64_t stride = row_stride(from.dim), padded = padded_columns<BF16>(from.dim);
    for (int64_t r = 0; r < kRows; ++r) {
      BF16* const row = to + r * stride;
      const int64_t there = r < from.count ? from.dim : 0;
      if (there > 0) std::memcpy(row, data + r * from.stride, static_cast<size_t>(there) * sizeof(BF16));
      std::fill(row + there, row + padded, BF16());
    }
  }
  void pack_dout(BF16* to, const Rows& from) const { pack_queries(to, from); }
  void pack_across(BF16* to, const Rows& from) const {
    pack_pairs_across(to, static_cast<const BF16*>(from.data) + from.offset, from.stride, from.count,
                      from.dim);
  }
  void pack_values(BF16* to, const Rows& from) const { pack_down(to, from, kKeys); }
  void pack_keys(BF16* to, const Rows& from) const { pack_down(to, from, kKeys); }
  void pack_rows_down(BF16* to, const Rows& from) const { pack_down(to, from, Products::kRowDepth); }

  void query_scores(float* scores, const BF16* queries, const BF16* keys, int64_t, int64_t dim,
                    const KeyRanges& ranges) const {
    score(scores, queries, keys, dim, shape.scale * kLog2e, ranges);
  }
  void dout_scores(float* scores, const BF16* dout, const BF16* values, int64_t, int64_t dim,
                   const KeyRanges& ranges) const {
    score(scores, dout, values, dim, 1.0f, ranges);
  }
  template <Start kStart>
  void add_down(float* sums, int64_t stride, const float* weights, const BF16* values, int64_t dim,
                const KeyRanges& ranges, const float* factor) const {
    products.add_values(sums, stride, weights, values, dim, ranges, factor);
  }
  void add_rows_down(float* sums, const float* weights, const BF16* rows, int64_t dim,
                     const TileRows& ranges) const {
    products.add_rows(sums, tile_stride<float>(dim), weights, rows, dim, ranges);
  }

 private:
  void score(float* scores, const BF16* rows, const BF16* columns, int64_t dim, float factor,
             const KeyRanges& ranges) const {
    products.score(scores, rows, row_stride(dim), columns, pair_panel_values(padded_columns<BF16>(dim)),
                   align_up(dim, Products::kDepth), factor, ranges);
  }
  void pack_down(BF16* to, const Rows& from, int64_t depths) const {
    pack_pairs_down(to, static_cast<const BF16*>(from.data) + from.offset, from.stride, from.count, from.dim,
                    depths, Products::kDepth);
  }
};

// Calls pass(math) with the arithmetic of the call.
template <typename Pass>
HWY_INLINE void by_products(const Call& call, const Pass& pass) {
  if (call.tiles != nullptr) {
    pass(Bf16Math(call, *call.tiles));
  } else if (call.pairs != nullptr) {
    pass(Bf16Math(call, *call.pairs));
  } else {
    pass(FloatMath(call));
  }
}

}  // namespace strata::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
