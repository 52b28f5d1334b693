#include <algorithm>
#include <cstring>

#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/listed_rows.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/bf16_pack.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

uint16_t bits_of(BF16 value) {
  return value.bits;
}
uint16_t bits_of(float value) {
  return BF16(value).bits;
}

#if HWY_TARGET != HWY_SCALAR
using W4 = hn::FixedTag<uint32_t, 4>;
using Words = hn::ScalableTag<uint32_t>;

// bf16 values in the lower halves of 32-bit words, one for each lane of D.
template <typename D>
HWY_INLINE hn::Vec<D> words_of(D d, const BF16* from) {
  const hn::Rebind<uint16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, &from->bits));
}
template <typename D>
HWY_INLINE hn::Vec<D> words_of(D, const float* from) {
  return nearest_bf16(hn::LoadU(hn::Rebind<float, D>(), from));
}

// Interleaves: to[i] = (low[i], high[i]), or (low[i], 0) if high is null.
template <typename D, typename T>
HWY_INLINE void zip(D d, BF16* to, const T* low, const T* high) {
  const auto above = high != nullptr ? hn::ShiftLeft<16>(words_of(d, high)) : hn::Zero(d);
  hn::StoreU(hn::Or(words_of(d, low), above), d, reinterpret_cast<uint32_t*>(to));
}
#endif

// A row's `depth` values in bf16: the row itself, or its values rounded into `buffer`.
const BF16* rounded(const BF16* from, int64_t, BF16*) {
  return from;
}
const BF16* rounded(const float* from, int64_t depth, BF16* buffer) {
  for_vectors(depth, [&](int64_t i, auto span) HWY_ATTR { store(buffer + i, load(from + i, span), span); });
  return buffer;
}

// Packs a panel of `count` columns whose depth is contiguous in memory, in 4 x 4 transposes of pairs. The
// last four columns overlap if 4 does not divide count.
template <typename T>
void PackTransposed(BF16* HWY_RESTRICT dst, int64_t panel, const T* src, int64_t stride, int64_t count,
                    int64_t depth) {
  constexpr int64_t kDeep = 128;  // depths that are rounded together
  HWY_ALIGN BF16 buffer[4][kDeep];
  for (int64_t first = 0; first < depth; first += kDeep) {
    const int64_t now = std::min(kDeep, depth - first);
    for (int64_t done = 0; done < count; done += 4) {
      const int64_t columns = std::min<int64_t>(4, count), i = std::min(done, count - columns);
      const BF16* row[4];
      for (int64_t r = 0; r < columns; ++r) row[r] = rounded(src + (i + r) * stride + first, now, buffer[r]);
      BF16* const to = dst + first * panel + 2 * i;
      int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
      const W4 d;
      const hn::Repartition<uint64_t, W4> d64;
      for (; columns == 4 && p + 8 <= now; p += 8) {
        const auto words = [&](int64_t r) HWY_ATTR {
          return hn::LoadU(d, reinterpret_cast<const uint32_t*>(row[r] + p));
        };
        const auto r0 = words(0), r1 = words(1), r2 = words(2), r3 = words(3);
        const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
        const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
        const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
        const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
        auto* const out = reinterpret_cast<uint32_t*>(to + p * panel);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + panel);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * panel);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * panel);
      }
#endif
      for (; p < now; ++p) {
        for (int64_t r = 0; r < columns; ++r) to[p / 2 * 2 * panel + 2 * r + p % 2] = row[r][p];
      }
    }
  }
}

// Packs `depth` rows of a panel as pairs of consecutive rows; an odd last row is paired with zeros. kFull:
// the panel width if the panel is whole, as a constant for the compiler.
template <int kFull, typename T, typename Depths>
void PackZipped(BF16* HWY_RESTRICT dst, int64_t panel, const T* src, int64_t stride, Depths depths,
                int64_t width, int64_t depth) {
  const int64_t count = kFull ? kFull : width;
  for (int64_t p = 0; p < depth; p += 2) {
    const bool has_next = p + 1 < depth;
    const T* const low = src + depths[p] * stride;
    const T* const high = has_next ? src + depths[p + 1] * stride : nullptr;
    BF16* const to = dst + p * panel;
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const auto zip_at = [&](auto d) HWY_ATTR { zip(d, to + 2 * i, low + i, has_next ? high + i : nullptr); };
    constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(Words()));
    for (; i + lanes <= count; i += lanes) zip_at(Words());
    for (; i + 4 <= count; i += 4) zip_at(W4());
    if (i < count && count >= 4) {  // the last four overlap
      i = count - 4;
      zip_at(W4());
      continue;
    }
#endif
    for (; i < count; ++i) {
      to[2 * i].bits = bits_of(low[i]);
      to[2 * i + 1].bits = has_next ? bits_of(high[i]) : uint16_t{0};
    }
  }
}

// Packs a few panels, a few rows at a time; each row is part of a few cache lines. Prefetches the next rows,
// since the hardware prefetcher cannot follow rows at arbitrary addresses.
template <typename T, typename Depths>
void PackZips(BF16* dst, int64_t panel, const T* src, int64_t stride, Depths depths, int64_t count,
              int64_t depth) {
  constexpr int64_t kAtOnce = 16, kWide = 128;
  const int64_t group = std::max<int64_t>(1, kWide / panel) * panel;
  for (int64_t first = 0; first < count; first += group) {
    const int64_t end = std::min(count, first + group);
    for (int64_t deep = 0; deep < depth; deep += kAtOnce) {
      const int64_t now = std::min(kAtOnce, depth - deep);
      for (int64_t p = deep + now; p < std::min(depth, deep + now + kAtOnce); ++p) {
        const T* const row = src + depths[p] * stride;
        for (int64_t i = first; i < end; i += 64 / static_cast<int64_t>(sizeof(T)))
          __builtin_prefetch(row + i, 0, 3);
      }
      for (int64_t i = first; i < end; i += panel) {
        BF16* const to = dst + i / panel * detail::panel_values(depth, panel) + deep * panel;
        const int64_t width = std::min(panel, count - i);
        if (width < panel) std::fill_n(to, detail::panel_values(now, panel), BF16());
        const auto zip = width == detail::kPairPanels.mr   ? PackZipped<detail::kPairPanels.mr, T, Depths>
                         : width == detail::kPairPanels.nr ? PackZipped<detail::kPairPanels.nr, T, Depths>
                                                           : PackZipped<0, T, Depths>;
        zip(to, panel, src + i, stride, depths.from(deep), width, now);
      }
    }
  }
}

template <typename T>
void PackTyped(BF16* dst, int64_t panel, const detail::OperandView& view, int64_t begin, int64_t count,
               int64_t depth_begin, int64_t depth) {
  const T* src = static_cast<const T*>(view.data);
  if (view.depth_major)
    return PackZips(dst, panel, src + begin, view.stride, detail::RowsInOrder{depth_begin}, count, depth);
  src += begin * view.stride + depth_begin;
  const int64_t values = detail::panel_values(depth, panel);
  for (int64_t i = 0; i < count; i += panel, dst += values) {
    const int64_t width = std::min(panel, count - i);
    if (width < panel || depth % 2 != 0) std::fill_n(dst, values, BF16());
    PackTransposed(dst, panel, src + i * view.stride, view.stride, width, depth);
  }
}

void Pack(BF16* dst, int64_t panel, const detail::OperandView& view, int64_t begin, int64_t count,
          int64_t depth_begin, int64_t depth) {
  if (view.dtype == DType::kBF16) {
    PackTyped<BF16>(dst, panel, view, begin, count, depth_begin, depth);
  } else {
    PackTyped<float>(dst, panel, view, begin, count, depth_begin, depth);
  }
}

void PackWithin(BF16* dst, int64_t panel, const float* columns, int64_t stride, int64_t count,
                int64_t depth) {
  PackTransposed(dst, panel, columns, stride, count, depth);
}

void PackListed(BF16* dst, int64_t panel, const detail::OperandView& view, const int32_t* depths,
                int64_t begin, int64_t count, int64_t depth) {
  PackZips(dst, panel, static_cast<const BF16*>(view.data) + begin, view.stride, detail::RowsListed{depths},
           count, depth);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(Pack);
HWY_EXPORT(PackWithin);
HWY_EXPORT(PackListed);

void pack_pairs(BF16* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
                int64_t depth_begin, int64_t depth) {
  HWY_DYNAMIC_DISPATCH(Pack)(dst, panel, view, begin, count, depth_begin, depth);
}

void pack_pairs_within(BF16* dst, int64_t panel, const float* columns, int64_t stride, int64_t count,
                       int64_t depth) {
  HWY_DYNAMIC_DISPATCH(PackWithin)(dst, panel, columns, stride, count, depth);
}

void pack_pairs_listed(BF16* dst, int64_t panel, const OperandView& view, const int32_t* depths,
                       int64_t begin, int64_t count, int64_t depth) {
  HWY_DYNAMIC_DISPATCH(PackListed)(dst, panel, view, depths, begin, count, depth);
}

}  // namespace strata::cpu::detail
#endif
