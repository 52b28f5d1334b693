// The product of blocks of pairs. Compiled by for_each_bf16_target.h.
namespace strata::cpu::STRATA_BF16_TARGET {

inline constexpr int kBlockRows = static_cast<int>(detail::kPairPanels.mr);
static_assert(detail::kPairPanels.nr == 2 * kLanes);

// One tile of kBlockRows x 2 vectors. Row r of C is at c + c_rows[r] * out.stride. A is a packed panel, or
// its row r lies at a + a_rows[r] * a_stride.
template <bool kPackedA, typename CRows, typename ARows>
STRATA_BF16_INLINE void tile_of_pairs(const detail::BlockOutput& out, float* c, CRows c_rows, const BF16* a,
                                      int64_t a_stride, ARows a_rows, const BF16* b, int64_t rows,
                                      int64_t cols, int64_t pairs) {
  for (int64_t r = 0; r < rows; ++r) {
    __builtin_prefetch(c + c_rows[r] * out.stride, 1, 3);
    __builtin_prefetch(c + c_rows[r] * out.stride + kLanes, 1, 3);
  }
  Sums sums[kBlockRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) sums[r][0] = sums[r][1] = no_sums();
  if (out.continues) [[unlikely]] {
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      if (r >= rows) break;
      float start[2 * kLanes] = {};
      std::memcpy(start, c + c_rows[r] * out.stride, static_cast<size_t>(cols) * sizeof(float));
      sums[r][0] = load_sums(start);
      sums[r][1] = load_sums(start + kLanes);
    }
  }
  const BF16* row[kBlockRows];
  if constexpr (!kPackedA) {
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) row[r] = a + a_rows[std::min<int64_t>(r, rows - 1)] * a_stride;
  }
  for (int64_t p = 0; p < pairs; ++p) {
    const Pairs b0 = load_pairs(b), b1 = load_pairs(b + 2 * kLanes);
    b += 4 * kLanes;
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      const Pairs of_row = same_pair(kPackedA ? a + 2 * r : row[r] + 2 * p);
      sums[r][0] = dot(sums[r][0], of_row, b0);
      sums[r][1] = dot(sums[r][1], of_row, b1);
    }
    if constexpr (kPackedA) a += 2 * kBlockRows;
  }
  const bool adds = out.accumulate && !out.continues;
  if (cols == 2 * kLanes) [[likely]] {
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      if (r >= rows) break;
      float* const to = c + c_rows[r] * out.stride;
      store_sums(to, adds ? add(load_sums(to), sums[r][0]) : sums[r][0]);
      store_sums(to + kLanes, adds ? add(load_sums(to + kLanes), sums[r][1]) : sums[r][1]);
    }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) {
    if (r >= rows) break;
    float edge[2 * kLanes];
    store_sums(edge, sums[r][0]);
    store_sums(edge + kLanes, sums[r][1]);
    float* const to = c + c_rows[r] * out.stride;
    for (int64_t i = 0; i < cols; ++i) to[i] = adds ? to[i] + edge[i] : edge[i];
  }
}

// For every panel of B, which stays in the L1 cache, all panels of A.
inline void MultiplyPacked(const detail::BlockOutput& out, const BF16* a, int64_t a_panel_stride,
                           const BF16* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth) {
  constexpr int64_t nr = 2 * kLanes;
  for (int64_t j = 0; j < cols; j += nr) {
    for (int64_t i = 0; i < rows; i += kBlockRows) {
      tile_of_pairs<true>(out, out.data + j, detail::RowsInOrder{i}, a + i / kBlockRows * a_panel_stride, 0,
                          detail::RowsInOrder{}, b + j / nr * b_panel_stride,
                          std::min<int64_t>(kBlockRows, rows - i), std::min(nr, cols - j), (depth + 1) / 2);
    }
  }
}

// For every few rows of A, which lie anywhere and stay in the L1 cache, all panels of B.
template <typename CRows, typename ARows>
void MultiplyRowsOf(const detail::BlockOutput& out, CRows c_rows, const BF16* a, int64_t a_stride,
                    ARows a_rows, const BF16* b, int64_t b_panel_stride, int64_t rows, int64_t cols,
                    int64_t depth) {
  constexpr int64_t nr = 2 * kLanes;
  for (int64_t i = 0; i < rows; i += kBlockRows) {
    for (int64_t j = 0; j < cols; j += nr) {
      tile_of_pairs<false>(out, out.data + j, c_rows.from(i), a, a_stride, a_rows.from(i),
                           b + j / nr * b_panel_stride, std::min<int64_t>(kBlockRows, rows - i),
                           std::min(nr, cols - j), depth / 2);
    }
  }
}
inline void MultiplyListed(const detail::BlockOutput& out, const int32_t* out_rows, const BF16* a,
                           int64_t a_stride, const int32_t* a_rows, const BF16* b, int64_t b_panel_stride,
                           int64_t rows, int64_t cols, int64_t depth) {
  detail::with_rows(out_rows, a_rows, [&](auto of_c, auto of_a) {
    MultiplyRowsOf(out, of_c, a, a_stride, of_a, b, b_panel_stride, rows, cols, depth);
  });
}

}  // namespace strata::cpu::STRATA_BF16_TARGET
