// Vector kernels of attention: exp2, packing of tiles, the register-blocked matmul of tiles. Compiled once
// for every SIMD target: include it after <hwy/foreach_target.h>. All arithmetic is fp32; bf16 and fp16
// are widened when a tile is packed. For matmuls of bf16 operands and their packing see attention_pairs.h and
// attention_math-inl.h.
#if defined(STRATA_KERNELS_CPU_ATTENTION_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_ATTENTION_SIMD_INL_H_
#undef STRATA_KERNELS_CPU_ATTENTION_SIMD_INL_H_
#else
#define STRATA_KERNELS_CPU_ATTENTION_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/attention_tiles.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using Vector = hn::Vec<F32>;

inline constexpr int64_t kLanes = HWY_LANES(float);
inline constexpr int64_t kPanel = 2 * kLanes;  // columns of a register tile
// Rows of a register tile, which fills the register file together with two vectors of columns.
#if HWY_TARGET == HWY_AVX3
inline constexpr int64_t kTile = 12;
#elif HWY_TARGET == HWY_NEON
inline constexpr int64_t kTile = 8;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int64_t kTile = 6;
#else
inline constexpr int64_t kTile = 4;
#endif
static_assert(kRows % kTile == 0 && kKeys % kTile == 0 && kKeys % kPanel == 0 && 16 % kLanes == 0);

// 2^x to 2 ulp; 0 below -126, NaN stays NaN. Minimax polynomial of degree 5 in [-1/2, 1/2], by iterated
// weighted least squares on the relative error (9e-8).
HWY_INLINE Vector exp2(Vector x) {
  const F32 d;
  const I32 di;
  // Adding 1.5 · 2^23 rounds to an integer in the low bits. With the exponent bias included, shifting these
  // bits left yields the exponent of a float.
  const Vector magic = hn::Set(d, 12582912.0f + 127.0f);
  const Vector shifted = hn::Add(x, magic);
  const Vector f = hn::Sub(x, hn::Sub(shifted, magic));
  Vector p = hn::MulAdd(f, hn::Set(d, 0x1.5bba1p-10f), hn::Set(d, 0x1.3cea88p-7f));
  p = hn::MulAdd(f, p, hn::Set(d, 0x1.c6b752p-5f));
  p = hn::MulAdd(f, p, hn::Set(d, 0x1.ebf9bcp-3f));
  p = hn::MulAdd(f, p, hn::Set(d, 0x1.62e42ap-1f));
  p = hn::MulAdd(f, p, hn::Set(d, 1.0f));
  const Vector power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, power));
}

HWY_INLINE Vector load(const float* p) {
  return hn::LoadU(F32(), p);
}
HWY_INLINE Vector load(const BF16* p) {
  const auto bits = hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

HWY_INLINE Vector load(const F16* p) {
  return simd::HWY_NAMESPACE::load(p, simd::HWY_NAMESPACE::Whole());
}

// tanh(x), with an error of 1e-7. The operand order lets NaN through on x86.
HWY_INLINE Vector tanh(Vector x) {
  const F32 d;
  const Vector one = hn::Set(d, 1.0f);
  x = hn::Max(hn::Set(d, -10.0f), hn::Min(hn::Set(d, 10.0f), x));
  const Vector e = exp2(hn::Mul(x, hn::Set(d, 2 * 1.44269504088896341f)));
  return hn::Div(hn::Sub(e, one), hn::Add(e, one));
}

// Sets the scores [begin, end) of a row to cap · tanh(score / cap), in whole vectors.
HWY_INLINE void cap_scores(float* row, int64_t begin, int64_t end, float cap) {
  const F32 d;
  const Vector c = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (int64_t j = begin; j < end; j += kLanes)
    hn::StoreU(hn::Mul(c, tanh(hn::Mul(hn::LoadU(d, row + j), inverse))), d, row + j);
}

// row[j] += factor · more[j] for j < n.
HWY_INLINE void add_scaled(float* HWY_RESTRICT row, const float* HWY_RESTRICT more, float factor, int64_t n) {
  const F32 d;
  const Vector f = hn::Set(d, factor);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    hn::StoreU(hn::MulAdd(hn::LoadU(d, more + j), f, hn::LoadU(d, row + j)), d, row + j);
  for (; j < n; ++j) row[j] += factor * more[j];
}

// Calls body(const T*) with the element type of a dtype.
template <typename Body>
HWY_INLINE void with_type(DType dtype, const Body& body) {
  if (dtype == DType::kF32) {
    body(static_cast<const float*>(nullptr));
  } else if (dtype == DType::kBF16) {
    body(static_cast<const BF16*>(nullptr));
  } else {
    body(static_cast<const F16*>(nullptr));
  }
}

// dst[r, c] = factor · src[r, c] for r < rows, c < columns; zero-padded to all_rows and to whole padded
// columns.
template <typename T>
HWY_NOINLINE void pack_rows_of(float* HWY_RESTRICT dst, int64_t dst_stride, const T* HWY_RESTRICT src,
                               int64_t src_stride, int64_t rows, int64_t all_rows, int64_t columns,
                               float factor) {
  const F32 d;
  const Vector f = hn::Set(d, factor);
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t whole = columns / kLanes * kLanes;
  const int64_t padded = padded_columns<float>(columns);
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = src + r * src_stride;
    float* to = dst + r * dst_stride;
    // Strided rows are beyond the hardware prefetcher.
    const T* ahead = src + std::min(r + 6, rows - 1) * src_stride;
    for (int64_t line = 0; line < columns; line += kLine) hwy::Prefetch(ahead + line);
    int64_t c = 0;
    for (; c < whole; c += kLanes) hn::StoreU(hn::Mul(load(from + c), f), d, to + c);
    for (; c < columns; ++c) to[c] = static_cast<float>(from[c]) * factor;
    for (; c < padded; ++c) to[c] = 0.0f;
  }
  for (int64_t r = rows; r < all_rows; ++r) {
    for (int64_t c = 0; c < padded; ++c) dst[r * dst_stride + c] = 0.0f;
  }
}
HWY_INLINE void pack_rows(float* dst, int64_t dst_stride, const void* src, DType dtype, int64_t offset,
                          int64_t src_stride, int64_t rows, int64_t all_rows, int64_t columns, float factor) {
  with_type(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_reference_t<decltype(*type)>;
    pack_rows_of(dst, dst_stride, static_cast<T*>(src) + offset, src_stride, rows, all_rows, columns, factor);
  });
}

#if HWY_TARGET != HWY_SCALAR
// Columns 0 … 3 of kLanes rows, one vector per column; a column is one element, or a pair of bf16 values if
// kPairs. Loads rows into 128-bit blocks of the vectors and transposes each block separately.
struct FourColumns {
  Vector column[4];
};
template <size_t kCount, bool kPairs, typename T>
HWY_INLINE auto load_blocks(const T* from, int64_t stride) {
  if constexpr (kCount == 4) {
    const hn::FixedTag<float, 4> d4;
    if constexpr (kPairs || std::is_same_v<T, float>) {
      return hn::LoadU(d4, reinterpret_cast<const float*>(from));
    } else {
      const hn::FixedTag<uint32_t, 4> u4;
      const auto bits = hn::LoadU(hn::FixedTag<uint16_t, 4>(), reinterpret_cast<const uint16_t*>(from));
      const auto words = hn::PromoteTo(u4, bits);
      if constexpr (std::is_same_v<T, F16>) return simd::HWY_NAMESPACE::widen_f16(d4, words);
      return hn::BitCast(d4, hn::ShiftLeft<16>(words));
    }
  } else {
    return hn::Combine(hn::FixedTag<float, kCount>(),
                       load_blocks<kCount / 2, kPairs>(from + stride * (kCount / 2), stride),
                       load_blocks<kCount / 2, kPairs>(from, stride));
  }
}
template <bool kPairs, typename T>
HWY_INLINE FourColumns transposed(const T* from, int64_t stride) {
  const F32 d;
  const hn::Repartition<uint64_t, F32> d64;
  const auto pairs = [&](Vector v) HWY_ATTR { return hn::BitCast(d64, v); };
  const Vector r0 = load_blocks<kLanes, kPairs>(from, stride),
               r1 = load_blocks<kLanes, kPairs>(from + stride, stride);
  const Vector r2 = load_blocks<kLanes, kPairs>(from + 2 * stride, stride),
               r3 = load_blocks<kLanes, kPairs>(from + 3 * stride, stride);
  const auto low01 = pairs(hn::InterleaveLower(d, r0, r1)), low23 = pairs(hn::InterleaveLower(d, r2, r3));
  const auto high01 = pairs(hn::InterleaveUpper(d, r0, r1)), high23 = pairs(hn::InterleaveUpper(d, r2, r3));
  return {{hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)),
           hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)),
           hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)),
           hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23))}};
}
#endif

// Packs transposed panels of kPanel keys: dst[key / kPanel][c][key % kPanel] = src[key, c]; zero-padded to a
// whole panel.
template <typename T>
HWY_NOINLINE void pack_transposed_of(float* HWY_RESTRICT dst, const T* HWY_RESTRICT src, int64_t src_stride,
                                     int64_t keys, int64_t columns) {
  for (int64_t first = 0; first < align_up(keys, kPanel); first += kLanes) {
    float* to = dst + first / kPanel * kPanel * columns + first % kPanel;
    const T* from = src + first * src_stride;
    int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    if (first + kLanes <= keys) {
      for (; c + 4 <= columns; c += 4) {
        const FourColumns four = transposed<false>(from + c, src_stride);
        for (int64_t i = 0; i < 4; ++i) hn::StoreU(four.column[i], F32(), to + (c + i) * kPanel);
      }
    }
#endif
    for (; c < columns; ++c) {
      for (int64_t key = 0; key < kLanes; ++key) {
        to[c * kPanel + key] = first + key < keys ? static_cast<float>(from[key * src_stride + c]) : 0.0f;
      }
    }
  }
}
HWY_INLINE void pack_transposed(float* dst, const void* src, DType dtype, int64_t offset, int64_t src_stride,
                                int64_t keys, int64_t columns) {
  with_type(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_reference_t<decltype(*type)>;
    pack_transposed_of(dst, static_cast<T*>(src) + offset, src_stride, keys, columns);
  });
}

// dst[c] = factor · src[c], rounded to the element type, for c < columns.
HWY_INLINE void unpack_row(void* dst, DType dtype, int64_t offset, const float* HWY_RESTRICT src,
                           int64_t columns, float factor) {
  with_type(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_const_t<std::remove_reference_t<decltype(*type)>>;
    T* HWY_RESTRICT to = static_cast<T*>(dst) + offset;
    int64_t c = 0;
    const Vector f = hn::Set(F32(), factor);
    for (; c + kLanes <= columns; c += kLanes)
      simd::HWY_NAMESPACE::store(to + c, hn::Mul(hn::LoadU(F32(), src + c), f), simd::HWY_NAMESPACE::Whole());
    for (; c < columns; ++c) to[c] = T(src[c] * factor);
  });
}

// c[m, :] = start + Σ_k a(m, k) · b[k, :] for kTile rows m and kVectors vectors of columns. k ascends, which
// defines the order of additions of every sum over tiles. a(m, k) is a[m · lda + k], or a[k · lda + m] if
// kTransposed; kScaledSum starts from factor[m] · c[m, :].
template <int kVectors, bool kTransposed, Start kStart>
HWY_NOINLINE void tile_product(int64_t n, const float* HWY_RESTRICT a, int64_t lda,
                               const float* HWY_RESTRICT b, int64_t ldb, float* HWY_RESTRICT c, int64_t ldc,
                               const float* HWY_RESTRICT factor) {
  const F32 d;
  Vector sum[kTile][kVectors];
#pragma GCC unroll 16
  for (int64_t m = 0; m < kTile; ++m) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) {
      if constexpr (kStart == Start::kZero) {
        sum[m][v] = hn::Zero(d);
      } else if constexpr (kStart == Start::kSum) {
        sum[m][v] = hn::LoadU(d, c + m * ldc + v * kLanes);
      } else {
        sum[m][v] = hn::Mul(hn::LoadU(d, c + m * ldc + v * kLanes), hn::Set(d, factor[m]));
      }
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    Vector row[kVectors];
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + k * ldb + v * kLanes);
#pragma GCC unroll 16
    for (int64_t m = 0; m < kTile; ++m) {
      const Vector x = hn::Set(d, kTransposed ? a[k * lda + m] : a[m * lda + k]);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) sum[m][v] = hn::MulAdd(x, row[v], sum[m][v]);
    }
  }
#pragma GCC unroll 16
  for (int64_t m = 0; m < kTile; ++m) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(sum[m][v], d, c + m * ldc + v * kLanes);
  }
}

using Ranges = TileRanges<kTile, kPanel>;

// scores[r, j] = Σ_c rows[r, c] · keys_t(c, j), for the panels that a tile of rows sees.
HWY_INLINE void score_tiles(float* scores, const float* rows, int64_t row_stride, const float* keys_t,
                            int64_t keys, int64_t columns, const Ranges& ranges) {
  for (int64_t j = 0; j < keys; j += kPanel) {
    for (int64_t t = 0; t < Ranges::kTiles; ++t) {
      if (!ranges.sees(t, j)) continue;
      tile_product<2, false, Start::kZero>(columns, rows + t * kTile * row_stride, row_stride,
                                           keys_t + j * columns, kPanel,
                                           scores + t * kTile * kScoreStride + j, kScoreStride, nullptr);
    }
  }
}

// sums[r, :] = start + Σ_j scores[r, j] · values[j, :] over the keys that a tile of rows sees.
template <Start kStart>
HWY_INLINE void add_values(float* sums, int64_t stride, const float* scores, const float* values,
                           int64_t value_stride, int64_t columns, const Ranges& ranges, const float* factor) {
  for (int64_t c = 0; c < columns; c += kPanel) {
    for (int64_t t = 0; t < Ranges::kTiles; ++t) {
      const int64_t n = ranges.end[t] - ranges.begin[t];
      if (n == 0) continue;
      const float* a = scores + t * kTile * kScoreStride + ranges.begin[t];
      const float* b = values + ranges.begin[t] * value_stride + c;
      float* to = sums + t * kTile * stride + c;
      const float* f = kStart == Start::kScaledSum ? factor + t * kTile : nullptr;
      if (c + kLanes < columns) {
        tile_product<2, false, kStart>(n, a, kScoreStride, b, value_stride, to, stride, f);
      } else {
        tile_product<1, false, kStart>(n, a, kScoreStride, b, value_stride, to, stride, f);
      }
    }
  }
}

// sums[key, :] += Σ_r weights[r, key] · rows[r, :] over the rows that see a tile of keys.
HWY_INLINE void add_rows(float* sums, int64_t stride, const float* weights, const float* rows,
                         int64_t columns, const RowRanges<kTile>& ranges) {
  for (int64_t t = 0; t < ranges.tiles; ++t) {
    const int64_t begin = ranges.begin[t], end = ranges.end[t];
    if (begin >= end) continue;
    const float* a = weights + begin * kScoreStride + t * kTile;
    for (int64_t c = 0; c < columns; c += kPanel) {
      const float* b = rows + begin * stride + c;
      float* to = sums + t * kTile * stride + c;
      if (c + kLanes < columns) {
        tile_product<2, true, Start::kSum>(end - begin, a, kScoreStride, b, stride, to, stride, nullptr);
      } else {
        tile_product<1, true, Start::kSum>(end - begin, a, kScoreStride, b, stride, to, stride, nullptr);
      }
    }
  }
}

}  // namespace strata::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
