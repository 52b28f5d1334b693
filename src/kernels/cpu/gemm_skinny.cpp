#include "kernels/cpu/gemm_skinny.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/parallel.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_skinny.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vector = hn::Vec<F32>;

// Vectors are processed two at a time. Of two bf16 vectors, the first takes the even elements and the second
// the odd ones, one instruction each; PackRows stores x in the same order.
template <bool kSecond>
HWY_INLINE Vector OneOfTwo(const float* from) {
  const F32 d;
  return hn::LoadU(d, from + (kSecond ? hn::Lanes(d) : 0));
}
constexpr uint32_t kUpperHalf = 0xffff0000u;
template <bool kSecond>
HWY_INLINE Vector OneOfTwo(const BF16* from, hn::Vec<hn::RebindToUnsigned<F32>> upper_half) {
  const hn::RebindToUnsigned<F32> d;
#if HWY_TARGET == HWY_SCALAR
  uint32_t pair;  // may be unaligned
  std::memcpy(&pair, from, sizeof pair);
  const auto pairs = hn::Set(d, pair);
#else
  const auto pairs = hn::LoadU(d, reinterpret_cast<const uint32_t*>(from));
#endif
  return hn::BitCast(F32(), kSecond ? hn::And(pairs, upper_half) : hn::ShiftLeft<16>(pairs));
}
template <bool kSecond>
HWY_INLINE Vector OneOfTwo(const BF16* from) {
  return OneOfTwo<kSecond>(from, hn::Set(hn::RebindToUnsigned<F32>(), kUpperHalf));
}
HWY_INLINE void Store(float* to, float value) {
  *to = value;
}
HWY_INLINE void Store(BF16* to, float value) {
  *to = BF16(value);
}

constexpr int64_t kLine = 64;  // bytes

// Keeps GCC from reloading a vector at each use: loads are the bottleneck of such a loop.
HWY_INLINE void KeepInRegister(Vector& v) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  __asm__("" : "+v"(v.raw));
#elif HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR
  __asm__("" : "+w"(v.raw));
#else
  (void)v;
#endif
}

// Loads the columns' vectors of one iteration. With few registers the mask is reloaded each time: keeping it
// in a register would spill a sum, which takes twice the time.
template <bool kSecond, size_t kColumns>
HWY_INLINE void LoadColumns(Vector (&to)[kColumns], const float* w, int64_t k) {
#pragma GCC unroll 3
  for (size_t c = 0; c < kColumns; ++c) to[c] = OneOfTwo<kSecond>(w + static_cast<int64_t>(c) * k);
}
template <bool kSecond, size_t kColumns>
HWY_INLINE void LoadColumns(Vector (&to)[kColumns], const BF16* w, int64_t k) {
  const uint32_t* mask = &kUpperHalf;
#if HWY_COMPILER_GCC_ACTUAL && HWY_TARGET == HWY_AVX2
  __asm__ volatile("" : "+r"(mask));
#endif
  const auto upper_half = hn::Set(hn::RebindToUnsigned<F32>(), *mask);
#pragma GCC unroll 3
  for (size_t c = 0; c < kColumns; ++c)
    to[c] = OneOfTwo<kSecond>(w + static_cast<int64_t>(c) * k, upper_half);
}

constexpr int kLanes = hn::MaxLanes(F32());

// Sums of adjacent elements: of `a`, then of `b`.
HWY_INLINE Vector Neighbours(Vector a, Vector b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Add(a, b);
#else
  const F32 d;
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

// The sum of a vector's elements, in the order of TotalsOf().
HWY_INLINE float TotalOf(Vector v) {
  for (int left = kLanes; left > 1; left /= 2) v = Neighbours(v, v);
  return hn::GetLane(v);
}

// Sums of kLanes vectors, in a third of the instructions.
template <int kLeft>
HWY_INLINE Vector TotalsOf(Vector (&v)[kLanes]) {
  if constexpr (kLeft == 1) {
    return v[0];
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < kLeft / 2; ++i) v[i] = Neighbours(v[2 * i], v[2 * i + 1]);
    return TotalsOf<kLeft / 2>(v);
  }
}

// Adds the elements after the last two whole vectors.
template <typename W>
HWY_INLINE float AddRest(float sum, const float* x, const W* w, int64_t rest) {
  for (int64_t i = 0; i < rest; ++i) sum += x[i] * static_cast<float>(w[i]);
  return sum;
}

// For one row of x the weight is read row by row as a single stream, prefetched into the L2 cache. Several
// streams side by side, or relying on the hardware prefetcher, would cost a tenth of the bandwidth.
constexpr int64_t kAhead = 4096;  // bytes

// x · w over k elements.
template <typename W>
HWY_INLINE float Dot(const float* HWY_RESTRICT x, const W* HWY_RESTRICT w, int64_t k) {
  const F32 d;
  const int64_t two = 2 * static_cast<int64_t>(hn::Lanes(d));
  Vector first = hn::Zero(d), second = hn::Zero(d);
  const auto add = [&](int64_t i) HWY_ATTR {
    first = hn::MulAdd(OneOfTwo<false>(x + i), OneOfTwo<false>(w + i), first);
    second = hn::MulAdd(OneOfTwo<true>(x + i), OneOfTwo<true>(w + i), second);
  };
  int64_t i = 0;
  for (; i + 2 * two <= k; i += 2 * two) {
    const auto* const ahead = reinterpret_cast<const std::byte*>(w + i) + kAhead;
    for (int64_t byte = 0; byte < 2 * two * int64_t{sizeof(W)}; byte += kLine)
      __builtin_prefetch(ahead + byte, 0, 2);
    add(i);
    add(i + two);
  }
  if (i + two <= k) {
    add(i);
    i += two;
  }
  return AddRest(TotalOf(hn::Add(first, second)), x + i, w + i, k - i);
}

// With more rows of x, arithmetic takes as long as reading. Tiles are sized so that their sums fit in
// registers together with one vector of each column and one of a row.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;
constexpr int kTileRows = kManyRegisters ? 8 : 4;
constexpr int kTileColumns = 3;
constexpr int64_t kTileTwos = kManyRegisters ? 24 : 48;  // of x per pass, to stay in the L1 cache
constexpr int64_t kBlockBytes = 64 << 10;                // of columns, to stay in the L2 cache
constexpr int64_t kBlockTiles = 12;

// Number of rows to compute together if `left` remain.
constexpr int RowsAtOnce(int64_t left) {
  int rows = kTileRows;
  while (rows > left) rows /= 2;
  return rows;
}

// Memory to prefetch during other work.
struct Ahead {
  const std::byte* from;
  int64_t bytes;  // per iteration
};

// One vector for each element of a tile, padded to whole vectors.
template <int kRows, int kColumns>
using Sums = float[(kRows * kColumns + kLanes - 1) / kLanes * kLanes][kLanes];

// Adds x · w to the sums, over the first (or second) vector of each of `twos`. Not inlined, because it needs
// every register.
template <bool kSecond, int kRows, int kColumns, typename W>
HWY_NOINLINE void AddProducts(Sums<kRows, kColumns>& sums, bool begin, const float* HWY_RESTRICT x,
                              const W* HWY_RESTRICT w, int64_t k, int64_t twos, Ahead ahead) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int c = 0; c < kColumns; ++c) sum[r][c] = begin ? hn::Zero(d) : hn::Load(d, sums[r * kColumns + c]);
  }
  if (kSecond) x += kRows * lanes;
  const std::byte* line = ahead.from;  // next line to prefetch
  for (int64_t i = 0; i < twos; ++i) {
    ahead.from += ahead.bytes;
    for (; line < ahead.from; line += kLine) __builtin_prefetch(line, 0, 2);
    Vector weight[kColumns];
    LoadColumns<kSecond>(weight, w, k);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      Vector row = hn::LoadU(d, x + r * lanes);
      KeepInRegister(row);
#pragma GCC unroll 3
      for (int c = 0; c < kColumns; ++c) sum[r][c] = hn::MulAdd(row, weight[c], sum[r][c]);
    }
    x += 2 * kRows * lanes;
    w += 2 * lanes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int c = 0; c < kColumns; ++c) hn::Store(sum[r][c], d, sums[r * kColumns + c]);
  }
}

// A tile of y: kRows rows of x by kColumns columns. Its elements have the bits of Dot(), so they do not
// depend on the rest of the tile: the registers hold the sums of all first vectors, then of all second ones.
template <int kRows, int kColumns>
struct Tile {
  HWY_ALIGN Sums<kRows, kColumns> first, second;

  // Adds `twos` pairs of vectors, starting at pair `done`; prefetches `ahead` meanwhile.
  template <typename W>
  HWY_INLINE void Add(const float* x, const W* w, int64_t k, int64_t done, int64_t twos, Ahead ahead) {
    const int64_t two = 2 * static_cast<int64_t>(hn::Lanes(F32()));
    x += done * two * kRows;
    w += done * two;
    AddProducts<false, kRows, kColumns>(first, done == 0, x, w, k, twos, ahead);
    ahead.from += twos * ahead.bytes;
    AddProducts<true, kRows, kColumns>(second, done == 0, x, w, k, twos, ahead);
  }

  template <typename W, typename Y>
  HWY_INLINE void Finish(Y* y, int64_t y_stride, const float* x, const W* w, const float* bias, int64_t k) {
    const F32 d;
    constexpr int kProducts = kRows * kColumns;
    HWY_ALIGN float totals[std::size(Sums<kRows, kColumns>{})];
#pragma GCC unroll 8
    for (int i = 0; i < kProducts; i += kLanes) {
      Vector sums[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) {
        const bool used = i + j < kProducts;
        sums[j] = used ? hn::Add(hn::Load(d, first[i + j]), hn::Load(d, second[i + j])) : hn::Zero(d);
      }
      hn::Store(TotalsOf<kLanes>(sums), d, totals + i);
    }
    const int64_t rest = k % (2 * kLanes);
    x += (k - rest) * kRows;
    w += k - rest;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int c = 0; c < kColumns; ++c) {
        const float sum = AddRest(totals[r * kColumns + c], x + r * rest, w + c * k, rest);
        Store(y + r * y_stride + c, sum + (bias ? bias[c] : 0.0f));
      }
    }
  }
};

// Multiplies kRows rows by a block of columns. The rows stay in the L1 cache, a part of their depth at a
// time. The block comes from the L2 cache, once for each group of rows, and each group prefetches its part of
// the next block.
template <int kRows, int kColumns, typename W, typename Y>
HWY_INLINE void RowsByColumns(const SkinnyShape& s, int64_t row, const float* x, const W* w,
                              const float* bias, Y* y, int64_t begin, int64_t end, int64_t next_block) {
  const int64_t twos = s.k / (2 * kLanes);
  const int64_t parts = std::max<int64_t>(1, (twos + kTileTwos - 1) / kTileTwos);
  const int64_t tile_bytes = kColumns * s.k * int64_t{sizeof(W)};
  const int64_t asked = twos == 0 ? 0 : (tile_bytes * kRows / s.rows + 2 * twos - 1) / (2 * twos);
  Tile<kRows, kColumns> tiles[kBlockTiles];
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t done = twos * part / parts, now = twos * (part + 1) / parts - done;
    Tile<kRows, kColumns>* tile = tiles;
    for (int64_t at = begin; at < end; at += kColumns, ++tile) {
      const auto* const next = reinterpret_cast<const std::byte*>(w + (at + next_block) * s.k);
      const Ahead ahead{next + tile_bytes * row / s.rows + 2 * done * asked,
                        at + next_block < s.n ? asked : 0};
      tile->Add(x + row * s.k, w + at * s.k, s.k, done, now, ahead);
    }
  }
  Tile<kRows, kColumns>* tile = tiles;
  for (int64_t at = begin; at < end; at += kColumns, ++tile) {
    tile->Finish(y + row * s.y_stride + at, s.y_stride, x + row * s.k, w + at * s.k,
                 bias ? bias + at : nullptr, s.k);
  }
}

// Computes columns [begin, end) of y. x is packed by Pack(), or is a single unpacked row.
template <typename W, typename Y>
HWY_INLINE void ColumnsOf(const SkinnyShape& s, const float* x, const W* w, const float* bias, Y* y,
                          int64_t begin, int64_t end) {
  if (s.rows == 1) {
    for (int64_t column = begin; column < end; ++column)
      Store(y + column, Dot(x, w + column * s.k, s.k) + (bias ? bias[column] : 0.0f));
    return;
  }
  const int64_t tile_bytes = kTileColumns * s.k * int64_t{sizeof(W)};
  const int64_t block =
      std::clamp<int64_t>(kBlockBytes / std::max<int64_t>(tile_bytes, 1), 1, kBlockTiles) * kTileColumns;
  for (int64_t column = begin; column < end; column += block) {
    const int64_t last = std::min(end, column + block);
    const int64_t tiled = last - (last - column) % kTileColumns;
    const auto pass = [&]<int kRows>(int64_t row) HWY_ATTR {
      RowsByColumns<kRows, kTileColumns>(s, row, x, w, bias, y, column, tiled, block);
      if (tiled < last) RowsByColumns<kRows, 1>(s, row, x, w, bias, y, tiled, last, block);
    };
    for (int64_t row = 0, now = 0; row < s.rows; row += now) {
      now = RowsAtOnce(s.rows - row);
      if constexpr (kTileRows >= 8) {
        if (now == 8) pass.template operator()<8>(row);
      }
      if (now == 4) pass.template operator()<4>(row);
      if (now == 2) pass.template operator()<2>(row);
      if (now == 1) pass.template operator()<1>(row);
    }
  }
}

void Columns(const SkinnyShape& s, const float* x, const float* w, const float* bias, float* y, int64_t begin,
             int64_t end) {
  ColumnsOf(s, x, w, bias, y, begin, end);
}
void ColumnsInBf16(const SkinnyShape& s, const float* x, const BF16* w, const float* bias, void* y,
                   DType y_dtype, int64_t begin, int64_t end) {
  if (y_dtype == DType::kF32) {
    ColumnsOf(s, x, w, bias, static_cast<float*>(y), begin, end);
  } else {
    ColumnsOf(s, x, w, bias, static_cast<BF16*>(y), begin, end);
  }
}

// Packs x for tiles: for each group of rows, vector by vector the same vector of each row, then row by row
// the elements after the last two whole vectors.
template <typename T>
HWY_INLINE void PackRows(float* HWY_RESTRICT to, const SkinnyShape& s, const T* HWY_RESTRICT x) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = s.k / (2 * lanes) * (2 * lanes);
  for (int64_t row = 0, now = 0; row < s.rows; row += now) {
    now = RowsAtOnce(s.rows - row);
    for (int64_t i = 0; i < whole; i += 2 * lanes) {
      for (int64_t r = 0; r < now; ++r) {
        const T* const from = x + (row + r) * s.x_stride + i;
        hn::StoreU(OneOfTwo<false>(from), d, to + r * lanes);
        hn::StoreU(OneOfTwo<true>(from), d, to + (now + r) * lanes);
      }
      to += 2 * now * lanes;
    }
    for (int64_t r = 0; r < now; ++r) {
      for (int64_t i = whole; i < s.k; ++i) *to++ = static_cast<float>(x[(row + r) * s.x_stride + i]);
    }
  }
}
void Pack(float* to, const SkinnyShape& s, const float* x) {
  PackRows(to, s, x);
}
void PackBf16(float* to, const SkinnyShape& s, const BF16* x) {
  PackRows(to, s, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(Columns);
HWY_EXPORT(ColumnsInBf16);
HWY_EXPORT(Pack);
HWY_EXPORT(PackBf16);

namespace {

// Columns per task: enough to amortize the blocks that are not prefetched, few enough to occupy all threads.
int64_t columns_of_task(const SkinnyShape& sizes) {
  constexpr int64_t kElements = 1 << 17, kLeast = 24, kTiles = 3;
  const int64_t k = std::max<int64_t>(sizes.k, 1);
  if (sizes.rows == 1) return std::max<int64_t>(16, kElements / k);
  return std::max(kLeast, std::min(2 * kElements / k, sizes.n / 4) / kTiles * kTiles);
}

}  // namespace

int64_t skinny_scratch_bytes(int64_t rows, int64_t k, DType dtype) {
  return dtype == DType::kF32 && rows == 1 ? 0 : rows * k * size_of(DType::kF32);
}

void multiply_skinny(const SkinnyShape& sizes, const float* x, const float* w, const float* bias, float* y,
                     float* scratch) {
  if (sizes.rows > 1) {
    HWY_DYNAMIC_DISPATCH(Pack)(scratch, sizes, x);
    x = scratch;
  }
  parallel_ranges(sizes.n, columns_of_task(sizes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Columns)(sizes, x, w, bias, y, begin, end);
  });
}

void multiply_skinny(const SkinnyShape& sizes, const BF16* x, const BF16* w, const float* bias, void* y,
                     DType y_dtype, float* scratch) {
  HWY_DYNAMIC_DISPATCH(PackBf16)(scratch, sizes, x);
  parallel_ranges(sizes.n, columns_of_task(sizes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ColumnsInBf16)(sizes, scratch, w, bias, y, y_dtype, begin, end);
  });
}

}  // namespace strata::cpu::detail
#endif
