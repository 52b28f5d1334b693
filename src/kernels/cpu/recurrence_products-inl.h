// Matmuls of small matrices in fp32, for recurrences: rows are padded to multiples of 16, columns to whole
// cache lines, and what pads is 0. Compiled once for every SIMD target: include it after
// <hwy/foreach_target.h>.
#if defined(STRATA_KERNELS_CPU_RECURRENCE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_RECURRENCE_PRODUCTS_INL_H_
#undef STRATA_KERNELS_CPU_RECURRENCE_PRODUCTS_INL_H_
#else
#define STRATA_KERNELS_CPU_RECURRENCE_PRODUCTS_INL_H_
#endif

#include "kernels/cpu/attention_simd-inl.h"
#include "kernels/cpu/recurrence_pairs.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::recurrence::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using attention::HWY_NAMESPACE::F32;
using attention::HWY_NAMESPACE::kLanes;
using attention::HWY_NAMESPACE::Vector;

// Rows of a register tile; it has two vectors of columns. 8 · 2 sums hide the latency of a multiply-add and
// leave half of the registers of AVX-512.
inline constexpr int64_t kTileRows = kLanes == 16 || HWY_TARGET == HWY_NEON ? 8 : 4;
static_assert(16 % kTileRows == 0 && 16 % kLanes == 0);

HWY_INLINE Vector load(const float* p) {
  return hn::LoadU(F32(), p);
}
HWY_INLINE void store(float* p, Vector v) {
  hn::StoreU(v, F32(), p);
}
HWY_INLINE Vector constant(float x) {
  return hn::Set(F32(), x);
}
HWY_INLINE Vector zero() {
  return hn::Zero(F32());
}
HWY_INLINE float sum_of_lanes(Vector v) {
  return hn::GetLane(hn::SumOfLanes(F32(), v));
}

// c[m, :] = Σ_k a(m, k) b[k, :], of kTileRows rows and kVectors vectors of columns; a(m, k) is a[m, k],
// or a[k, m] if kAcross. k ascends.
template <int kVectors, bool kAcross>
HWY_INLINE void product_tile(int64_t n, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                             int64_t ldb, const Target& to, int64_t row, int64_t column) {
  Vector sum[kTileRows][kVectors];
#pragma GCC unroll 16
  for (int64_t m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) sum[m][v] = zero();
  }
  for (int64_t k = 0; k < n; ++k) {
    Vector x[kVectors];
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) x[v] = load(b + k * ldb + v * kLanes);
#pragma GCC unroll 16
    for (int64_t m = 0; m < kTileRows; ++m) {
      const Vector factor = constant(kAcross ? a[k * lda + m] : a[m * lda + k]);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) sum[m][v] = hn::MulAdd(factor, x[v], sum[m][v]);
    }
  }
  const int64_t first = row * to.stride + column;
#pragma GCC unroll 16
  for (int64_t m = 0; m < kTileRows; ++m) {
    const Vector factor = constant(to.rows != nullptr ? to.factor * to.rows[row + m] : to.factor);
    const Vector of_more = constant(to.more_rows != nullptr ? to.more_rows[row + m] : 1.0f);
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t at = first + m * to.stride + v * kLanes;
      Vector all = hn::Mul(factor, sum[m][v]);
      if (to.more != nullptr) all = hn::MulAdd(of_more, load(to.more + at), all);
      store(to.at + at, all);
    }
  }
}

// [rows, columns] = a [rows, depth] · b [depth, columns]; rows are a multiple of kTileRows, columns of 16.
template <bool kAcross>
HWY_NOINLINE void multiply(int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b, Target to,
                           Part part) {
  for (int64_t j = 0; j < columns; j += 2 * kLanes) {
    for (int64_t i = part == Part::kLowerResult ? j / kTileRows * kTileRows : 0; i < rows; i += kTileRows) {
      const int64_t begin = part == Part::kLowerAcross ? i : 0;
      const int64_t end = part == Part::kLower ? std::min(depth, i + kTileRows) : depth;
      const float* const from = kAcross ? a.at + begin * a.stride + i : a.at + i * a.stride + begin;
      if (j + kLanes < columns) {
        product_tile<2, kAcross>(end - begin, from, a.stride, b.at + begin * b.stride + j, b.stride, to, i,
                                 j);
      } else {
        product_tile<1, kAcross>(end - begin, from, a.stride, b.at + begin * b.stride + j, b.stride, to, i,
                                 j);
      }
    }
  }
}
HWY_INLINE void multiply_rows(int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b, Target to,
                              Part part = Part::kAll) {
  multiply<false>(rows, columns, depth, a, b, to, part);
}
// With a [depth, rows].
HWY_INLINE void multiply_across(int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b, Target to,
                                Part part = Part::kAll) {
  multiply<true>(rows, columns, depth, a, b, to, part);
}

// to[c, r] = from[r, c]; rows and columns are multiples of 16.
inline HWY_NOINLINE void transpose(float* HWY_RESTRICT to, int64_t to_stride, const float* HWY_RESTRICT from,
                                   int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c += 4) {
#if HWY_TARGET == HWY_SCALAR
      for (int64_t i = 0; i < 4; ++i) to[(c + i) * to_stride + r] = from[r * stride + c + i];
#else
      const auto four = attention::HWY_NAMESPACE::transposed<false>(from + r * stride + c, stride);
      for (int64_t i = 0; i < 4; ++i) store(to + (c + i) * to_stride + r, four.column[i]);
#endif
    }
  }
}

// Rows of n elements, n a multiple of 16.
template <typename Body>
HWY_INLINE void for_columns(int64_t n, const Body& body) {
  for (int64_t c = 0; c < n; c += kLanes) body(c);
}
HWY_INLINE void clear(float* p, int64_t n) {
  for (int64_t c = 0; c < n; c += kLanes) store(p + c, zero());
}
HWY_INLINE void scale_row(float* to, const float* from, float factor, int64_t n) {
  const Vector f = constant(factor);
  for (int64_t c = 0; c < n; c += kLanes) store(to + c, hn::Mul(f, load(from + c)));
}
HWY_INLINE void multiply_row(float* to, const float* a, const float* b, int64_t n) {
  for (int64_t c = 0; c < n; c += kLanes) store(to + c, hn::Mul(load(a + c), load(b + c)));
}
HWY_INLINE float dot_rows(const float* a, const float* b, int64_t n) {
  Vector sum = zero();
  for (int64_t c = 0; c < n; c += kLanes) sum = hn::MulAdd(load(a + c), load(b + c), sum);
  return sum_of_lanes(sum);
}

}  // namespace strata::cpu::recurrence::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
