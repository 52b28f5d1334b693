// Matmul of packed blocks in VNNI layout. Compiled by for_each_bf16_target.h.
namespace strata::cpu::STRATA_BF16_TARGET {

inline constexpr int kBlockRows = static_cast<int>(detail::kPairPanels.mr);
inline constexpr int kBlockVectors = static_cast<int>(detail::kPairPanels.nr / kLanes);
static_assert(detail::kPairPanels.nr == kBlockVectors * kLanes);
inline constexpr int64_t kLineBytes = 64;  // of a cache line
inline constexpr int64_t kPairGroup = 4;

// Prefetches rows into the L2 cache, a few lines for every kPairGroup pairs.
class AheadOfPairs {
 public:
  // Spreads all of `rows` over `groups` groups.
  AheadOfPairs(const detail::RowsAhead& rows, int64_t groups)
      : from_(rows.from),
        row_lines_((rows.bytes + kLineBytes - 1) / kLineBytes),
        in_row_(row_lines_),
        rows_(rows.rows),
        skip_(rows.stride - row_lines_ * kLineBytes),
        lines_((rows_ * row_lines_ + groups - 1) / std::max<int64_t>(groups, 1)) {}
  STRATA_BF16_INLINE void ask() {
    if (rows_ == 0) return;
    for (int64_t line = 0; line < lines_; ++line, from_ += kLineBytes) {
      __builtin_prefetch(from_, 0, 2);
      if (--in_row_ > 0) continue;
      if (--rows_ == 0) return;
      from_ += skip_;
      in_row_ = row_lines_;
    }
  }

 private:
  const std::byte* from_;
  int64_t row_lines_, in_row_, rows_, skip_, lines_;
};

// Adds the sums of a tile to C, scaled. Parts of a panel take the same steps in a buffer.
template <typename CRows>
STRATA_BF16_INLINE void store_scaled(const detail::BlockOutput& out, const detail::SumScales& scales,
                                     float* c, CRows c_rows, const Sums (&sums)[kBlockRows][kBlockVectors],
                                     const float* bias, int64_t rows, int64_t cols) {
  constexpr int64_t nr = detail::kPairPanels.nr;
  const bool whole = cols == nr;
  const auto bytes = static_cast<size_t>(cols) * sizeof(float);
  float buffer[nr] = {};
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) {
    if (r >= rows) break;
    const Sums of_row = same_number(scales.rows[r]);
    float* const to = c + c_rows[r] * out.stride;
    const float* const before = out.accumulate ? to : bias;
    if (!whole && before != nullptr) std::memcpy(buffer, before, bytes);
    const float* const from = whole ? before : buffer;
    float* const at = whole ? to : buffer;
#pragma GCC unroll 4
    for (int v = 0; v < kBlockVectors; ++v) {
      const Sums factor = multiply(of_row, load_sums(scales.cols + v * kLanes));
      const Sums base = before != nullptr ? load_sums(from + v * kLanes) : no_sums();
      store_sums(at + v * kLanes, multiply_add(sums[r][v], factor, base));
    }
    if (!whole) std::memcpy(to, buffer, bytes);
  }
}

// One tile of kBlockRows x kBlockVectors vectors. Row r of C is at c + c_rows[r] * out.stride. A is a packed
// panel, or its row r is at a + a_rows[r] * a_stride.
template <bool kPackedA, bool kScaled = false, typename CRows, typename ARows>
STRATA_BF16_INLINE void tile_of_pairs(const detail::BlockOutput& out, float* c, CRows c_rows, const BF16* a,
                                      int64_t a_stride, ARows a_rows, const BF16* b, const float* bias,
                                      int64_t rows, int64_t cols, int64_t pairs, AheadOfPairs& ahead,
                                      const detail::SumScales& scales = {}) {
  constexpr int64_t nr = detail::kPairPanels.nr;
  Sums sums[kBlockRows][kBlockVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kBlockVectors; ++v) sums[r][v] = no_sums();
  }
  if (out.continues) [[unlikely]] {
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      if (r >= rows) break;
      float start[nr] = {};
      std::memcpy(start, c + c_rows[r] * out.stride, static_cast<size_t>(cols) * sizeof(float));
#pragma GCC unroll 4
      for (int v = 0; v < kBlockVectors; ++v) sums[r][v] = load_sums(start + v * kLanes);
    }
  }
  const BF16* row[kBlockRows];
  if constexpr (!kPackedA) {
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) row[r] = a + a_rows[std::min<int64_t>(r, rows - 1)] * a_stride;
  }
  const auto add_pair = [&](int64_t p) __attribute__((always_inline)) {
    Pairs columns[kBlockVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kBlockVectors; ++v) columns[v] = load_pairs(b + 2 * v * kLanes);
    b += 2 * nr;
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      const Pairs of_row = same_pair(kPackedA ? a + 2 * r : row[r] + 2 * p);
#pragma GCC unroll 4
      for (int v = 0; v < kBlockVectors; ++v) sums[r][v] = dot(sums[r][v], of_row, columns[v]);
    }
    if constexpr (kPackedA) a += 2 * kBlockRows;
  };
  int64_t p = 0;
  for (int64_t r = 0; p + kPairGroup <= pairs; p += kPairGroup, ++r) {
    if (r < rows) {  // the result's lines are prefetched one by one too
#pragma GCC unroll 4
      for (int v = 0; v < kBlockVectors; ++v)
        __builtin_prefetch(c + c_rows[r] * out.stride + v * kLanes, 1, 3);
    }
    ahead.ask();
#pragma GCC unroll 4
    for (int64_t i = 0; i < kPairGroup; ++i) add_pair(p + i);
  }
  for (; p < pairs; ++p) add_pair(p);
  if constexpr (kScaled) return store_scaled(out, scales, c, c_rows, sums, bias, rows, cols);
  const bool adds = out.accumulate && !out.continues;
  if (cols == nr) [[likely]] {
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      if (r >= rows) break;
      float* const to = c + c_rows[r] * out.stride;
#pragma GCC unroll 4
      for (int v = 0; v < kBlockVectors; ++v) {
        Sums sum = sums[r][v];
        if (adds) sum = add(load_sums(to + v * kLanes), sum);
        if (bias != nullptr) sum = add(sum, load_sums(bias + v * kLanes));
        store_sums(to + v * kLanes, sum);
      }
    }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) {
    if (r >= rows) break;
    float edge[nr];
#pragma GCC unroll 4
    for (int v = 0; v < kBlockVectors; ++v) store_sums(edge + v * kLanes, sums[r][v]);
    float* const to = c + c_rows[r] * out.stride;
    for (int64_t i = 0; i < cols; ++i) to[i] = (adds ? to[i] + edge[i] : edge[i]) + (bias ? bias[i] : 0.0f);
  }
}

// For each panel of B, multiplies all panels of A; the panel of B stays in the L1 cache. Meanwhile prefetches
// the next panel, or `next` after the last one.
template <bool kScaled, typename CRows>
void MultiplyPanels(const detail::BlockOutput& out, CRows c_rows, const detail::SumScales& scales,
                    const BF16* a, int64_t a_panel_stride, const BF16* b, int64_t b_panel_stride,
                    int64_t rows, int64_t cols, int64_t depth, const BF16* next) {
  constexpr int64_t nr = detail::kPairPanels.nr;
  const int64_t row_tiles = (rows + kBlockRows - 1) / kBlockRows, pairs = (depth + 1) / 2;
  for (int64_t j = 0; j < cols; j += nr) {
    const BF16* const panel = b + j / nr * b_panel_stride;
    const BF16* const next_panel = j + nr < cols ? panel + b_panel_stride : next;
    const int64_t bytes = detail::panel_values(depth, nr) * static_cast<int64_t>(sizeof(BF16));
    AheadOfPairs ahead({.from = reinterpret_cast<const std::byte*>(next_panel),
                        .rows = next_panel != nullptr ? 1 : 0,
                        .bytes = bytes},
                       row_tiles * (pairs / kPairGroup));
    for (int64_t tile = 0; tile < row_tiles; ++tile) {
      const int64_t i = tile * kBlockRows;
      const detail::SumScales of_tile =
          kScaled ? detail::SumScales{scales.rows + i, scales.cols + j} : detail::SumScales{};
      tile_of_pairs<true, kScaled>(out, out.data + j, c_rows.from(i), a + tile * a_panel_stride, 0,
                                   detail::RowsInOrder{}, panel, out.bias ? out.bias + j : nullptr,
                                   std::min<int64_t>(kBlockRows, rows - i), std::min(nr, cols - j), pairs,
                                   ahead, of_tile);
    }
  }
}
inline void MultiplyPacked(const detail::BlockOutput& out, const BF16* a, int64_t a_panel_stride,
                           const BF16* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                           const BF16* next) {
  MultiplyPanels<false>(out, detail::RowsInOrder(), {}, a, a_panel_stride, b, b_panel_stride, rows, cols,
                        depth, next);
}
inline void MultiplyScaled(const detail::BlockOutput& out, const int32_t* out_rows,
                           const detail::SumScales& scales, const BF16* a, int64_t a_panel_stride,
                           const BF16* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                           const BF16* next) {
  detail::with_rows(out_rows, nullptr, [&](auto of_c, auto) {
    MultiplyPanels<true>(out, of_c, scales, a, a_panel_stride, b, b_panel_stride, rows, cols, depth, next);
  });
}

// For each group of kBlockRows rows of A, at any address, multiplies all panels of B; the rows stay in L1.
template <typename CRows, typename ARows>
void MultiplyRowsOf(const detail::BlockOutput& out, CRows c_rows, const BF16* a, int64_t a_stride,
                    ARows a_rows, const BF16* b, int64_t b_panel_stride, int64_t rows, int64_t cols,
                    int64_t depth, const detail::RowsAhead& next) {
  constexpr int64_t nr = detail::kPairPanels.nr;
  const int64_t tiles = (rows + kBlockRows - 1) / kBlockRows * ((cols + nr - 1) / nr);
  AheadOfPairs ahead(next, tiles * (depth / 2 / kPairGroup));
  for (int64_t i = 0; i < rows; i += kBlockRows) {
    for (int64_t j = 0; j < cols; j += nr) {
      tile_of_pairs<false>(out, out.data + j, c_rows.from(i), a, a_stride, a_rows.from(i),
                           b + j / nr * b_panel_stride, out.bias ? out.bias + j : nullptr,
                           std::min<int64_t>(kBlockRows, rows - i), std::min(nr, cols - j), depth / 2, ahead);
    }
  }
}
inline void MultiplyListed(const detail::BlockOutput& out, const int32_t* out_rows, const BF16* a,
                           int64_t a_stride, const int32_t* a_rows, const BF16* b, int64_t b_panel_stride,
                           int64_t rows, int64_t cols, int64_t depth, const detail::RowsAhead& next) {
  detail::with_rows(out_rows, a_rows, [&](auto of_c, auto of_a) {
    MultiplyRowsOf(out, of_c, a, a_stride, of_a, b, b_panel_stride, rows, cols, depth, next);
  });
}

}  // namespace strata::cpu::STRATA_BF16_TARGET
