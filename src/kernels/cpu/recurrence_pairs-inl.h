// VDPBF16PS kernel of recurrences. Compiled for the instruction and for its model by for_each_bf16_target.h.
#include "kernels/cpu/bf16_round-inl.h"

namespace strata::cpu::STRATA_BF16_TARGET::recurrence_pairs {

using recurrence::Matrix, recurrence::PairMatmul, recurrence::Part, recurrence::Target;

// Rows of a register tile; it has two vectors of columns, and 16 sums hide the latency of the instruction.
inline constexpr int64_t kTileRows = 8;

// kTileRows rows and kVectors vectors of columns, over `pairs` pairs of depths. The pair of row m is at a + m ·
// lda + 2 · pair, or at a + pair · lda + 2 · m if kAcross.
template <int kVectors, bool kAcross>
STRATA_BF16_INLINE void multiply_tile(int64_t pairs, const BF16* a, int64_t lda, const BF16* b,
                                      const Target& to, int64_t row, int64_t column) {
  Sums sums[kTileRows][kVectors];
#pragma GCC unroll 16
  for (int64_t m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) sums[m][v] = no_sums();
  }
  for (int64_t p = 0; p < pairs; ++p) {
    Pairs columns[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) columns[v] = load_pairs(b + (p * kVectors + v) * kValues);
#pragma GCC unroll 16
    for (int64_t m = 0; m < kTileRows; ++m) {
      const Pairs own = same_pair(kAcross ? a + p * lda + 2 * m : a + m * lda + 2 * p);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) sums[m][v] = dot(sums[m][v], own, columns[v]);
    }
  }
#pragma GCC unroll 16
  for (int64_t m = 0; m < kTileRows; ++m) {
    const Sums factor = all_of(to.rows != nullptr ? to.factor * to.rows[row + m] : to.factor);
    const Sums of_more = all_of(to.more_rows != nullptr ? to.more_rows[row + m] : 1.0f);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t at = (row + m) * to.stride + column + v * kLanes;
      Sums all = product(sums[m][v], factor);
      if (to.more != nullptr) all = multiply_add(load_sums(to.more + at), of_more, all);
      store_sums(to.at + at, all);
    }
  }
}

// One panel of columns, for all tiles of rows.
template <int kVectors, bool kAcross>
void multiply_panel(int64_t rows, int64_t depth, const BF16* a, int64_t lda, Matrix b, const Target& to,
                    Part part, int64_t column, BF16* panel) {
  for (int64_t k = 0; k < depth; k += 2) {
    const float* const from = b.at + k * b.stride + column;
    for (int64_t v = 0; v < kVectors; ++v)
      round_to_pairs(panel + (k / 2 * kVectors + v) * kValues, from + v * kLanes,
                     from + b.stride + v * kLanes);
  }
  for (int64_t i = part == Part::kLowerResult ? column / kTileRows * kTileRows : 0; i < rows;
       i += kTileRows) {
    const int64_t begin = part == Part::kLowerAcross ? i : 0;
    const int64_t end = part == Part::kLower ? std::min(depth, i + kTileRows) : depth;
    multiply_tile<kVectors, kAcross>((end - begin) / 2,
                                     kAcross ? a + begin / 2 * lda + 2 * i : a + i * lda + begin, lda,
                                     panel + begin * kVectors * kLanes, to, i, column);
  }
}

template <bool kAcross>
void multiply_all(int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b, const Target& to,
                  Part part, BF16* memory) {
  const int64_t lda = kAcross ? 2 * rows : (depth + kValues - 1) / kValues * kValues;
  if (kAcross) {
    for (int64_t k = 0; k < depth; k += 2) {
      for (int64_t m = 0; m < rows; m += kLanes)
        round_to_pairs(memory + k / 2 * lda + 2 * m, a.at + k * a.stride + m, a.at + (k + 1) * a.stride + m);
    }
  } else {
    // The second half of a row's last vector is not used if the depth ends before it.
    for (int64_t m = 0; m < rows; ++m) {
      const float* const row = a.at + m * a.stride;
      for (int64_t k = 0; k < depth; k += kValues)
        round_in_order(memory + m * lda + k, row + k, row + (k + kLanes < depth ? k + kLanes : k));
    }
  }
  BF16* const panel = memory + (kAcross ? depth * rows : rows * lda);
  int64_t column = 0;
  for (; column + kLanes < columns; column += 2 * kLanes)
    multiply_panel<2, kAcross>(rows, depth, memory, lda, b, to, part, column, panel);
  if (column < columns) multiply_panel<1, kAcross>(rows, depth, memory, lda, b, to, part, column, panel);
}

inline void multiply(bool across, int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b,
                     const Target& to, Part part, BF16* memory) {
  if (across) {
    multiply_all<true>(rows, columns, depth, a, b, to, part, memory);
  } else {
    multiply_all<false>(rows, columns, depth, a, b, to, part, memory);
  }
}

inline constexpr PairMatmul kMatmul{multiply};

}  // namespace strata::cpu::STRATA_BF16_TARGET::recurrence_pairs
