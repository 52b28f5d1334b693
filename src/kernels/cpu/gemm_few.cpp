#include "kernels/cpu/gemm_few.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/parallel.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_few.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vector = hn::Vec<F32>;

struct Two {
  Vector first, second;
};
// Two vectors of neighbouring elements. Of bf16 the first has those at even places and the second those at
// odd ones, which takes one instruction each: x lies the same way (in_twos).
HWY_INLINE Two LoadTwo(const float* from) {
  const F32 d;
  return {hn::LoadU(d, from), hn::LoadU(d, from + hn::Lanes(d))};
}
HWY_INLINE Two LoadTwo(const BF16* from) {
  const hn::RebindToUnsigned<F32> d;
#if HWY_TARGET == HWY_SCALAR
  uint32_t pair;  // which need not be aligned
  std::memcpy(&pair, from, sizeof pair);
  const auto pairs = hn::Set(d, pair);
#else
  const auto pairs = hn::LoadU(d, reinterpret_cast<const uint32_t*>(from));
#endif
  return {hn::BitCast(F32(), hn::ShiftLeft<16>(pairs)),
          hn::BitCast(F32(), hn::And(pairs, hn::Set(d, 0xffff0000u)))};
}
HWY_INLINE void Store(float* to, float value) {
  *to = value;
}
HWY_INLINE void Store(BF16* to, float value) {
  *to = BF16(value);
}

// For one row of x the weight is read row by row as one stream, with the lines to come asked for into the L2
// cache: a few streams side by side, or waiting for the processor to notice a stream, cost a tenth of the
// bandwidth.
constexpr int64_t kAhead = 4096;  // bytes

// For more rows of x arithmetic takes as long: so many rows and columns at once, whose sums fit the
// registers.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;
constexpr int kTileColumns = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 3 : 2;

// sums[r][c] = x[r] · w[c] over k elements. A sum is the same whatever is computed beside it.
template <int kRows, int kColumns, typename W>
HWY_INLINE void Dots(float (*HWY_RESTRICT sums)[kColumns], const float* HWY_RESTRICT x, int64_t x_stride,
                     const W* HWY_RESTRICT w, int64_t k) {
  constexpr bool kOne = kRows == 1 && kColumns == 1;
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), two = 2 * lanes;
  // Two of each take turns, so that additions wait less for each other.
  Vector first[kRows][kColumns], second[kRows][kColumns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) first[r][c] = second[r][c] = hn::Zero(d);
  }
  const auto add = [&](int64_t i) HWY_ATTR {
    Two weight[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) weight[c] = LoadTwo(w + c * k + i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Two row = LoadTwo(x + r * x_stride + i);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        first[r][c] = hn::MulAdd(row.first, weight[c].first, first[r][c]);
        second[r][c] = hn::MulAdd(row.second, weight[c].second, second[r][c]);
      }
    }
  };
  int64_t i = 0;
  for (; i + 2 * two <= k; i += 2 * two) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      // The columns behind these, or of one what follows.
      const auto* const ahead =
          reinterpret_cast<const std::byte*>(w + (kOne ? 0 : c + kColumns) * k + i) + (kOne ? kAhead : 0);
      for (int64_t byte = 0; byte < 2 * two * static_cast<int64_t>(sizeof(W)); byte += 64)
        __builtin_prefetch(ahead + byte, 0, 2);
    }
    add(i);
    add(i + two);
  }
  if (i + two <= k) {
    add(i);
    i += two;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(first[r][c], second[r][c])));
      for (int64_t rest = i; rest < k; ++rest)
        sum += x[r * x_stride + rest] * static_cast<float>(w[c * k + rest]);
      sums[r][c] = sum;
    }
  }
}

template <typename W, typename Y>
HWY_INLINE void ColumnsOf(const FewRows& s, const float* x, int64_t x_stride, const W* w, const float* bias,
                          Y* y, int64_t begin, int64_t end) {
  const auto tile = [&]<int kRows, int kColumns>(int64_t row, int64_t column) HWY_ATTR {
    float sums[kRows][kColumns];
    Dots<kRows, kColumns>(sums, x + row * x_stride, x_stride, w + column * s.k, s.k);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c)
        Store(y + (row + r) * s.y_stride + column + c, sums[r][c] + (bias ? bias[column + c] : 0.0f));
    }
  };
  int64_t column = begin;
  if (s.rows >= kTileRows) {
    // A few rows of x stay in the L1 cache while some columns pass, and those in the L2 cache for the rows to
    // come.
    constexpr int64_t kBlock = 16 * kTileColumns;
    while (column + kTileColumns <= end) {
      const int64_t last = std::min(end, column + kBlock) - kTileColumns;
      int64_t row = 0, next = column;
      for (; row + kTileRows <= s.rows; row += kTileRows) {
        for (next = column; next <= last; next += kTileColumns)
          tile.template operator()<kTileRows, kTileColumns>(row, next);
      }
      for (; row < s.rows; ++row) {
        for (next = column; next <= last; next += kTileColumns)
          tile.template operator()<1, kTileColumns>(row, next);
      }
      column = next;
    }
  }
  for (; column < end; ++column) {
    for (int64_t row = 0; row < s.rows; ++row) tile.template operator()<1, 1>(row, column);
  }
}

void Columns(const FewRows& s, const float* x, const float* w, const float* bias, float* y, int64_t begin,
             int64_t end) {
  ColumnsOf(s, x, s.x_stride, w, bias, y, begin, end);
}
void ColumnsInBf16(const FewRows& s, const float* x, const BF16* w, const float* bias, void* y, DType y_dtype,
                   int64_t begin, int64_t end) {
  if (y_dtype == DType::kF32) {
    ColumnsOf(s, x, s.k, w, bias, static_cast<float*>(y), begin, end);
  } else {
    ColumnsOf(s, x, s.k, w, bias, static_cast<BF16*>(y), begin, end);
  }
}

// A row of x in fp32, as LoadTwo() takes the weight.
void InTwos(float* to, const BF16* x, int64_t k) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= k; i += 2 * lanes) {
    const Two two = LoadTwo(x + i);
    hn::StoreU(two.first, d, to + i);
    hn::StoreU(two.second, d, to + i + lanes);
  }
  for (; i < k; ++i) to[i] = static_cast<float>(x[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(Columns);
HWY_EXPORT(ColumnsInBf16);
HWY_EXPORT(InTwos);

namespace {

int64_t columns_of_task(const FewRows& sizes) {
  constexpr int64_t kElementsPerTask = 1 << 17;
  return std::max<int64_t>(16, kElementsPerTask / std::max<int64_t>(sizes.k, 1));
}

}  // namespace

void multiply_few_rows(const FewRows& sizes, const float* x, const float* w, const float* bias, float* y) {
  parallel_ranges(sizes.n, columns_of_task(sizes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Columns)(sizes, x, w, bias, y, begin, end);
  });
}

void multiply_few_rows(const FewRows& sizes, const BF16* x, const BF16* w, const float* bias, void* y,
                       DType y_dtype, float* wide) {
  for (int64_t r = 0; r < sizes.rows; ++r)
    HWY_DYNAMIC_DISPATCH(InTwos)(wide + r * sizes.k, x + r * sizes.x_stride, sizes.k);
  parallel_ranges(sizes.n, columns_of_task(sizes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ColumnsInBf16)(sizes, wide, w, bias, y, y_dtype, begin, end);
  });
}

}  // namespace strata::cpu::detail
#endif
