// Vectors of codes, one a lane of 32 bits, to bytes in memory. Compiled once for every SIMD target: include it after
// <hwy/foreach_target.h>.
#if defined(STRATA_QUANTIZE_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_QUANTIZE_BYTES_INL_H_
#undef STRATA_QUANTIZE_BYTES_INL_H_
#else
#define STRATA_QUANTIZE_BYTES_INL_H_
#endif

#include "quantize/round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

using U8 = hn::Rebind<uint8_t, F32>;  // as many lanes as F32

HWY_INLINE void store_bytes(IntVector codes, uint8_t* to, Whole) {
  hn::StoreU(hn::DemoteTo(U8(), codes), U8(), to);
}
HWY_INLINE void store_bytes(IntVector codes, uint8_t* to, Part part) {
  HWY_ALIGN uint8_t buffer[HWY_LANES(float)];
  store_bytes(codes, buffer, Whole());
  std::memcpy(to, buffer, part.count);
}

// Four codes in each word, that of `a` in the lowest byte.
HWY_INLINE hn::Vec<U32> quad(IntVector a, IntVector b, IntVector c, IntVector d) {
  const auto lower = hn::Or(a, hn::ShiftLeft<8>(b));
  const auto upper = hn::Or(c, hn::ShiftLeft<8>(d));
  return hn::BitCast(U32(), hn::Or(lower, hn::ShiftLeft<16>(upper)));
}

// Stores the codes of four consecutive vectors; with kStream past the caches.
class BytesOfQuad {
 public:
#if HWY_TARGET == HWY_SCALAR
  template <bool kStream>
  HWY_INLINE void store(IntVector a, IntVector b, IntVector c, IntVector d, uint8_t* to) const {
    const IntVector all[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(hn::GetLane(all[i]));
  }
#else
  BytesOfQuad()
      : within_(hn::LoadDup128(Bytes(), kWithin)), blocks_(hn::SetTableIndices(U32(), indices().at)) {}
  // In each block of 128 bits the bytes of one vector come together; then the blocks of one vector.
  template <bool kStream>
  HWY_INLINE void store(IntVector a, IntVector b, IntVector c, IntVector d, uint8_t* to) const {
    const auto bytes = hn::TableLookupBytes(hn::BitCast(Bytes(), quad(a, b, c, d)), within_);
    const auto ordered = hn::TableLookupLanes(hn::BitCast(U32(), bytes), blocks_);
    if constexpr (kStream) {
      hn::Stream(ordered, U32(), reinterpret_cast<uint32_t*>(to));
    } else {
      hn::StoreU(ordered, U32(), reinterpret_cast<uint32_t*>(to));
    }
  }

 private:
  using Bytes = hn::Repartition<uint8_t, F32>;
  static constexpr uint8_t kWithin[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  struct Indices {
    uint32_t at[HWY_LANES(float)];
  };
  static Indices indices() {
    Indices indices;
    const size_t blocks = hn::Lanes(U32()) / 4;
    for (size_t i = 0; i < 4 * blocks; ++i)
      indices.at[i] = static_cast<uint32_t>(i % blocks * 4 + i / blocks);
    return indices;
  }
  hn::Vec<Bytes> within_;
  decltype(hn::SetTableIndices(U32(), static_cast<const uint32_t*>(nullptr))) blocks_;
#endif
};

// Four rows of kTile words, of which each has four codes of a column: to[k][row, row + 16) = the codes of column k.
HWY_INLINE void transpose_4(const uint32_t* quads, uint8_t* const* to, int64_t row) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t k = 0; k < 4; ++k) std::memcpy(to[k] + row + 4 * i, quads + i * kTile + k, 4);
  }
#else
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> pairs;
  const auto a = hn::Load(d, quads), b = hn::Load(d, quads + kTile);
  const auto e = hn::Load(d, quads + 2 * kTile), f = hn::Load(d, quads + 3 * kTile);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)),
             ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ef_low = hn::BitCast(pairs, hn::InterleaveLower(d, e, f)),
             ef_high = hn::BitCast(pairs, hn::InterleaveUpper(d, e, f));
  const auto write = [&](int64_t k, hn::Vec<decltype(pairs)> codes) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, codes), d, reinterpret_cast<uint32_t*>(to[k] + row));
  };
  write(0, hn::InterleaveLower(pairs, ab_low, ef_low));
  write(1, hn::InterleaveUpper(pairs, ab_low, ef_low));
  write(2, hn::InterleaveLower(pairs, ab_high, ef_high));
  write(3, hn::InterleaveUpper(pairs, ab_high, ef_high));
#endif
}

// Copies n bytes, a multiple of 64, between aligned places, past the caches.
HWY_INLINE void stream_bytes(const uint8_t* from, int64_t n, uint8_t* to) {
  const hn::ScalableTag<uint8_t> d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::Stream(hn::Load(d, from + i), d, to + i);
}

// out[i / 2] = codes[i] | codes[i + 1] << 4; after an odd number 0 follows.
inline void pack_pairs(const uint8_t* codes, int64_t n, uint8_t* out) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<uint16_t> d;
  const hn::Rebind<uint8_t, decltype(d)> half;
  const auto step = 2 * static_cast<int64_t>(hn::Lanes(d));
  for (; i + step <= n; i += step) {
    const auto both = hn::LoadU(d, reinterpret_cast<const uint16_t*>(codes + i));
    const auto joined = hn::And(hn::Or(both, hn::ShiftRight<4>(both)), hn::Set(d, 0xff));
    hn::StoreU(hn::TruncateTo(half, joined), half, out + i / 2);
  }
#endif
  for (; i + 1 < n; i += 2) out[i / 2] = static_cast<uint8_t>(codes[i] | codes[i + 1] << 4);
  if (i < n) out[i / 2] = codes[i];
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
