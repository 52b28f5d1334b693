#include "kernels/cpu/gemm_block.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/listed_rows.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_block.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Accumulators fill all registers that operands do not need: 6 x 2 of 16 registers, 6 x 4 of 32. 6 x 4 loads
// 10 vectors for 24 multiply-adds, 12 x 2 would load 14, and loads are the bottleneck of current processors.
#if HWY_TARGET <= HWY_AVX3
constexpr int kRows = 6;
constexpr int kVectors = 4;
#elif HWY_ARCH_ARM_A64
constexpr int kRows = 12;
constexpr int kVectors = 2;
#else
constexpr int kRows = 6;
constexpr int kVectors = 2;
#endif
constexpr int64_t kLine = 64 / sizeof(float);

PanelShape Panels() {
  return {kRows, kVectors * static_cast<int64_t>(hn::Lanes(F32()))};
}

// Memory to prefetch into the L2 cache, a few lines at a time: many together would stall the multiply-adds.
struct Ahead {
  const float* from = nullptr;
  int64_t lines = 0;  // for every kGroup depths
};
constexpr int64_t kGroup = 4;

// Adds the sums of a tile to C, scaled. Parts of a panel take the same steps in a buffer, so that they have the same bits.
template <typename CRows>
HWY_INLINE void StoreScaled(const BlockOutput& out, const SumScales& scales, float* c, CRows c_rows,
                            const V (&acc)[kRows][kVectors], const float* bias, int64_t rows, int64_t cols) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool whole = cols == kVectors * lanes;
  const auto bytes = static_cast<size_t>(cols) * sizeof(float);
  HWY_ALIGN float buffer[kVectors * HWY_MAX_BYTES / sizeof(float)] = {};
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
    const V of_row = hn::Set(d, scales.rows[r]);
    float* const to = c + c_rows[r] * out.stride;
    const float* const before = out.accumulate ? to : bias;
    if (!whole && before != nullptr) std::memcpy(buffer, before, bytes);
    const float* const from = whole ? before : buffer;
    float* const at = whole ? to : buffer;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const V factor = hn::Mul(of_row, hn::LoadU(d, scales.cols + v * lanes));
      const V base = before != nullptr ? hn::LoadU(d, from + v * lanes) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(acc[r][v], factor, base), d, at + v * lanes);
    }
    if (!whole) std::memcpy(to, buffer, bytes);
  }
}

// One kRows x nr tile. Row r of C is at c + c_rows[r] * out.stride. A is a packed panel, or its row r is at
// a + a_rows[r] * a_stride.
template <bool kPackedA, bool kScaled = false, typename CRows, typename ARows>
HWY_INLINE void Tile(const BlockOutput& out, float* c, CRows c_rows, const float* HWY_RESTRICT a,
                     int64_t a_stride, ARows a_rows, const float* HWY_RESTRICT b, const float* bias,
                     int64_t rows, int64_t cols, int64_t depth, Ahead ahead, const SumScales& scales = {}) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  }
  if (out.continues) [[unlikely]] {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      HWY_ALIGN float start[kVectors * HWY_MAX_BYTES / sizeof(float)] = {};
      std::memcpy(start, c + c_rows[r] * out.stride, static_cast<size_t>(cols) * sizeof(float));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Load(d, start + v * lanes);
    }
  }
  const float* row[kRows];
  if constexpr (!kPackedA) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) row[r] = a + a_rows[std::min<int64_t>(r, rows - 1)] * a_stride;
  }
  const auto add = [&](int64_t p) HWY_ATTR {
    V bv[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) bv[v] = hn::Load(d, b + v * lanes);
    b += kVectors * lanes;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V ar = hn::Set(d, kPackedA ? a[r] : row[r][p]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(ar, bv[v], acc[r][v]);
    }
    if constexpr (kPackedA) a += kRows;
  };
  // Not unrolled over depths: g++ would then load rows ahead into more registers than exist and spill sums
  // (AVX2: 92 instead of 98 of 104 GFLOP/s).
  int64_t p = 0;
  for (int64_t r = 0; p + kGroup <= depth; p += kGroup, ++r) {
    if (r < rows) {  // the result's lines are prefetched one by one too
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(c + c_rows[r] * out.stride + v * lanes, 1, 3);
    }
    for (int64_t line = 0; line < ahead.lines; ++line, ahead.from += kLine)
      __builtin_prefetch(ahead.from, 0, 2);
#pragma GCC unroll 1
    for (int64_t i = 0; i < kGroup; ++i) add(p + i);
  }
  for (; p < depth; ++p) add(p);
  if constexpr (kScaled) return StoreScaled(out, scales, c, c_rows, acc, bias, rows, cols);
  if (cols == kVectors * lanes) [[likely]] {
    V base[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) base[v] = bias ? hn::LoadU(d, bias + v * lanes) : hn::Zero(d);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      float* to = c + c_rows[r] * out.stride;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const V before = out.accumulate && !out.continues ? hn::LoadU(d, to + v * lanes) : base[v];
        hn::StoreU(hn::Add(before, acc[r][v]), d, to + v * lanes);
      }
    }
    return;
  }
  HWY_ALIGN float edge[kRows * kVectors * HWY_MAX_BYTES / sizeof(float)];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, edge + (kVectors * r + v) * lanes);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < cols; ++i) {
      const float value = edge[kVectors * lanes * r + i];
      float& to = c[c_rows[r] * out.stride + i];
      to = out.accumulate && !out.continues ? to + value : value + (bias ? bias[i] : 0.0f);
    }
  }
}

// For each panel of B, multiplies all rows of A: the panel stays in the L1 cache, panels of A come from L2.
// Meanwhile prefetches the next panel, or `next` after the last one.
template <bool kPackedA, bool kScaled = false, typename CRows, typename ARows>
void Multiply(const BlockOutput& out, CRows c_rows, const float* a, int64_t a_stride, ARows a_rows,
              const float* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
              const float* next, const SumScales& scales = {}) {
  const int64_t nr = Panels().nr;
  const int64_t row_tiles = (rows + kRows - 1) / kRows;
  const int64_t lines = (kGroup * nr / kLine + row_tiles - 1) / row_tiles;
  for (int64_t j = 0; j < cols; j += nr) {
    const float* b_panel = b + j / nr * b_panel_stride;
    const float* bias = out.bias ? out.bias + j : nullptr;
    const float* const next_panel = j + nr < cols ? b_panel + b_panel_stride : next;
    for (int64_t tile = 0; tile < row_tiles; ++tile) {
      const int64_t i = tile * kRows;
      const Ahead ahead{next_panel + tile * lines * kLine * (depth / kGroup), next_panel ? lines : 0};
      const SumScales of_tile = kScaled ? SumScales{scales.rows + i, scales.cols + j} : SumScales{};
      Tile<kPackedA, kScaled>(out, out.data + j, c_rows.from(i), kPackedA ? a + tile * a_stride : a, a_stride,
                              a_rows.from(i), b_panel, bias, std::min<int64_t>(kRows, rows - i),
                              std::min(nr, cols - j), depth, ahead, of_tile);
    }
  }
}

void MultiplyPacked(const BlockOutput& out, const float* a, int64_t a_panel_stride, const float* b,
                    int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth, const float* next) {
  Multiply<true>(out, RowsInOrder(), a, a_panel_stride, RowsInOrder(), b, b_panel_stride, rows, cols, depth,
                 next);
}
void MultiplyScaled(const BlockOutput& out, const int32_t* out_rows, const SumScales& scales, const float* a,
                    int64_t a_panel_stride, const float* b, int64_t b_panel_stride, int64_t rows,
                    int64_t cols, int64_t depth, const float* next) {
  with_rows(out_rows, nullptr, [&](auto of_c, auto of_a) {
    Multiply<true, true>(out, of_c, a, a_panel_stride, of_a, b, b_panel_stride, rows, cols, depth, next,
                         scales);
  });
}
void MultiplyRows(const BlockOutput& out, const float* a, int64_t a_stride, const float* b,
                  int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth, const float* next) {
  Multiply<false>(out, RowsInOrder(), a, a_stride, RowsInOrder(), b, b_panel_stride, rows, cols, depth, next);
}

// For each group of kRows rows of A, at any address, multiplies all panels of B: the rows stay in the L1
// cache, panels come from L2 in sequence, as the hardware prefetcher expects.
template <typename CRows, typename ARows>
void MultiplyRowsOf(const BlockOutput& out, CRows c_rows, const float* a, int64_t a_stride, ARows a_rows,
                    const float* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth) {
  const int64_t nr = Panels().nr;
  for (int64_t i = 0; i < rows; i += kRows) {
    for (int64_t j = 0; j < cols; j += nr) {
      Tile<false>(out, out.data + j, c_rows.from(i), a, a_stride, a_rows.from(i), b + j / nr * b_panel_stride,
                  out.bias ? out.bias + j : nullptr, std::min<int64_t>(kRows, rows - i),
                  std::min(nr, cols - j), depth, {});
    }
  }
}
void MultiplyListed(const BlockOutput& out, const int32_t* out_rows, const float* a, int64_t a_stride,
                    const int32_t* a_rows, const float* b, int64_t b_panel_stride, int64_t rows, int64_t cols,
                    int64_t depth) {
  with_rows(out_rows, a_rows, [&](auto of_c, auto of_a) {
    MultiplyRowsOf(out, of_c, a, a_stride, of_a, b, b_panel_stride, rows, cols, depth);
  });
}

// Values as f32; those that are f32 are rounded to R first.
template <typename R, typename T>
HWY_INLINE float Value(T from) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(R(from));
  return static_cast<float>(from);
}

#if HWY_TARGET != HWY_SCALAR
// Loads four consecutive values as f32.
using F4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<F4>;

template <typename R>
HWY_INLINE V4 Values4(const float* from) {
  const F4 d;
  const V4 value = hn::LoadU(d, from);
  if constexpr (std::is_same_v<R, float>) return value;
  if constexpr (std::is_same_v<R, F16>)
    return simd::HWY_NAMESPACE::widen_f16(d, simd::HWY_NAMESPACE::nearest_f16(value));
  return hn::BitCast(d, hn::ShiftLeft<16>(simd::HWY_NAMESPACE::nearest_bf16(value)));
}
template <typename R, typename T>
HWY_INLINE V4 Values4(const T* from) {
  const F4 d;
  const hn::Rebind<uint16_t, F4> d16;
  const auto bits = hn::PromoteTo(hn::RebindToUnsigned<F4>(), hn::LoadU(d16, &from->bits));
  if constexpr (std::is_same_v<T, F16>) return simd::HWY_NAMESPACE::widen_f16(d, bits);
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
#endif

// Packs a panel whose depth is contiguous in memory, in 4 x 4 transposes.
template <typename R, typename T>
void PackTransposed(float* HWY_RESTRICT dst, int64_t panel, const T* src, int64_t stride, int64_t count,
                    int64_t depth) {
#if HWY_TARGET != HWY_SCALAR
  if (count >= 4) {
    const F4 d;
    const hn::Repartition<double, F4> d64;
    const int64_t full_depth = depth / 4 * 4;
    for (int64_t done = 0; done < count; done += 4) {
      const int64_t i = std::min(done, count - 4);  // the last four overlap if 4 does not divide count
      const T* row = src + i * stride;
      for (int64_t p = 0; p < full_depth; p += 4) {
        if (p % kLine == 0) {
          for (int64_t r = 4; r < 8; ++r) __builtin_prefetch(row + r * stride + p, 0, 3);
        }
        const V4 r0 = Values4<R>(row + p);
        const V4 r1 = Values4<R>(row + stride + p);
        const V4 r2 = Values4<R>(row + 2 * stride + p);
        const V4 r3 = Values4<R>(row + 3 * stride + p);
        const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
        const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
        const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
        const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
        float* to = dst + p * panel + i;
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + panel);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * panel);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * panel);
      }
      for (int64_t p = full_depth; p < depth; ++p) {
        for (int64_t r = 0; r < 4; ++r) dst[p * panel + i + r] = Value<R>(row[r * stride + p]);
      }
    }
    return;
  }
#endif
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t p = 0; p < depth; ++p) dst[p * panel + i] = Value<R>(src[i * stride + p]);
  }
}

// Packs a panel whose rows (or columns) are contiguous in memory, one copy per depth. kFull: the panel width
// if the panel is whole, as a constant for the compiler.
template <int kFull, typename R, typename T, typename Depths>
void PackCopied(float* HWY_RESTRICT dst, int64_t panel, const T* src, int64_t stride, Depths depths,
                int64_t width, int64_t depth) {
  const int64_t count = kFull ? kFull : width;
  for (int64_t p = 0; p < depth; ++p) {
    const T* from = src + depths[p] * stride;
    float* to = dst + p * panel;
#if HWY_TARGET != HWY_SCALAR
    if (count >= 4) {
      for (int64_t done = 0; done < count; done += 4) {
        const int64_t i = std::min(done, count - 4);
        hn::StoreU(Values4<R>(from + i), F4(), to + i);
      }
      continue;
    }
#endif
    for (int64_t i = 0; i < count; ++i) to[i] = Value<R>(from[i]);
  }
}

// Packs a few panels, a few rows at a time; each row is part of a few cache lines. Prefetches the next rows,
// since the hardware prefetcher cannot follow rows at arbitrary addresses.
template <typename R, typename T, typename Depths>
void PackCopies(float* dst, int64_t panel, const T* src, int64_t stride, Depths depths, int64_t count,
                int64_t depth) {
  constexpr int64_t kAtOnce = 16, kWide = 128;
  const int64_t group = std::max<int64_t>(1, kWide / panel) * panel;
  for (int64_t first = 0; first < count; first += group) {
    const int64_t end = std::min(count, first + group);
    for (int64_t deep = 0; deep < depth; deep += kAtOnce) {
      const int64_t deep_end = std::min(depth, deep + kAtOnce);
      for (int64_t p = deep_end; p < std::min(depth, deep_end + kAtOnce); ++p) {
        const T* const row = src + depths[p] * stride;
        for (int64_t i = first; i < end; i += 64 / static_cast<int64_t>(sizeof(T)))
          __builtin_prefetch(row + i, 0, 3);
      }
      for (int64_t i = first; i < end; i += panel) {
        float* const to = dst + i * depth + deep * panel;
        const int64_t width = std::min(panel, count - i);
        if (width < panel) std::fill(to, to + panel * (deep_end - deep), 0.0f);
        const auto copy = width == kRows                        ? PackCopied<kRows, R, T, Depths>
                          : width == Panels().nr && width == 16 ? PackCopied<16, R, T, Depths>
                          : width == Panels().nr && width == 32 ? PackCopied<32, R, T, Depths>
                          : width == Panels().nr && width == 64 ? PackCopied<64, R, T, Depths>
                                                                : PackCopied<0, R, T, Depths>;
        copy(to, panel, src + i, stride, depths.from(deep), width, deep_end - deep);
      }
    }
  }
}

template <typename R, typename T>
void PackTyped(float* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
               int64_t depth_begin, int64_t depth) {
  const T* src = static_cast<const T*>(view.data);
  if (view.depth_major)
    return PackCopies<R>(dst, panel, src + begin, view.stride, RowsInOrder{depth_begin}, count, depth);
  src += begin * view.stride + depth_begin;
  for (int64_t i = 0; i < count; i += panel, dst += panel * depth) {
    const int64_t width = std::min(panel, count - i);
    if (width < panel) std::fill(dst, dst + panel * depth, 0.0f);
    PackTransposed<R>(dst, panel, src + i * view.stride, view.stride, width, depth);
  }
}

void Pack(float* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
          int64_t depth_begin, int64_t depth) {
  const auto pack =
      view.dtype == DType::kF32
          ? by_dtype(view.rounded_to, PackTyped<float, float>, PackTyped<BF16, float>, PackTyped<F16, float>)
          : by_dtype(view.dtype, PackTyped<float, float>, PackTyped<float, BF16>, PackTyped<float, F16>);
  pack(dst, panel, view, begin, count, depth_begin, depth);
}

template <typename T>
void PackListedTyped(float* dst, int64_t panel, const OperandView& view, const int32_t* depths, int64_t begin,
                     int64_t count, int64_t depth) {
  PackCopies<float>(dst, panel, static_cast<const T*>(view.data) + begin, view.stride, RowsListed{depths},
                    count, depth);
}
void PackListed(float* dst, int64_t panel, const OperandView& view, const int32_t* depths, int64_t begin,
                int64_t count, int64_t depth) {
  by_dtype(view.dtype, PackListedTyped<float>, PackListedTyped<BF16>, PackListedTyped<F16>)(
      dst, panel, view, depths, begin, count, depth);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(Panels);
HWY_EXPORT(MultiplyPacked);
HWY_EXPORT(MultiplyScaled);
HWY_EXPORT(MultiplyRows);
HWY_EXPORT(MultiplyListed);
HWY_EXPORT(Pack);
HWY_EXPORT(PackListed);

PanelShape panel_shape() {
  return HWY_DYNAMIC_DISPATCH(Panels)();
}

PanelShape panel_shape_of(const hardware::IsaFlags& isa) {
  // kRows and kVectors of the kernels above, with 16, 8, 4 or (plain C++) 1 lane.
  if (isa.avx512) return {6, 64};
  if (isa.avx2) return {6, 16};
  return isa.neon ? PanelShape{12, 8} : PanelShape{6, 2};
}

void multiply_block(const BlockOutput& out, const float* a, int64_t a_panel_stride, const float* b,
                    int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth, const float* next) {
  HWY_DYNAMIC_DISPATCH(MultiplyPacked)(out, a, a_panel_stride, b, b_panel_stride, rows, cols, depth, next);
}

void multiply_block_scaled(const BlockOutput& out, const int32_t* out_rows, const SumScales& scales,
                           const float* a, int64_t a_panel_stride, const float* b, int64_t b_panel_stride,
                           int64_t rows, int64_t cols, int64_t depth, const float* next) {
  HWY_DYNAMIC_DISPATCH(MultiplyScaled)
  (out, out_rows, scales, a, a_panel_stride, b, b_panel_stride, rows, cols, depth, next);
}

void multiply_block_rows(const BlockOutput& out, const float* a, int64_t a_stride, const float* b,
                         int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                         const float* next) {
  HWY_DYNAMIC_DISPATCH(MultiplyRows)(out, a, a_stride, b, b_panel_stride, rows, cols, depth, next);
}

void multiply_block_listed(const BlockOutput& out, const int32_t* out_rows, const float* a, int64_t a_stride,
                           const int32_t* a_rows, const float* b, int64_t b_panel_stride, int64_t rows,
                           int64_t cols, int64_t depth) {
  HWY_DYNAMIC_DISPATCH(MultiplyListed)
  (out, out_rows, a, a_stride, a_rows, b, b_panel_stride, rows, cols, depth);
}

void pack_panels_listed(float* dst, int64_t panel, const OperandView& view, const int32_t* depths,
                        int64_t begin, int64_t count, int64_t depth) {
  HWY_DYNAMIC_DISPATCH(PackListed)(dst, panel, view, depths, begin, count, depth);
}

void pack_panels(float* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
                 int64_t depth_begin, int64_t depth) {
  HWY_DYNAMIC_DISPATCH(Pack)(dst, panel, view, begin, count, depth_begin, depth);
}

}  // namespace strata::cpu::detail
#endif
