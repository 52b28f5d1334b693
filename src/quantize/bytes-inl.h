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

// The bytes of four consecutive vectors in order, from their quad.
class BytesOfQuad {
 public:
#if HWY_TARGET == HWY_SCALAR
  HWY_INLINE hn::Vec<U32> operator()(hn::Vec<U32> quad) const {
    return quad;
  }
#else
  BytesOfQuad()
      : within_(hn::LoadDup128(Bytes(), kWithin)), blocks_(hn::SetTableIndices(U32(), indices().at)) {}
  // In each block of 128 bits the bytes of one vector come together; then the blocks of one vector.
  HWY_INLINE hn::Vec<U32> operator()(hn::Vec<U32> quad) const {
    const auto bytes = hn::TableLookupBytes(hn::BitCast(Bytes(), quad), within_);
    return hn::TableLookupLanes(hn::BitCast(U32(), bytes), blocks_);
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

// Transposes the words of each block of four lanes: a gets the first word of a, b, c and d, and so on.
HWY_INLINE void transpose_words(hn::Vec<U32>& a, hn::Vec<U32>& b, hn::Vec<U32>& c, hn::Vec<U32>& d) {
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<uint64_t, U32> pairs;
  const auto ab_lower = hn::BitCast(pairs, hn::InterleaveLower(U32(), a, b));
  const auto ab_upper = hn::BitCast(pairs, hn::InterleaveUpper(U32(), a, b));
  const auto cd_lower = hn::BitCast(pairs, hn::InterleaveLower(U32(), c, d));
  const auto cd_upper = hn::BitCast(pairs, hn::InterleaveUpper(U32(), c, d));
  a = hn::BitCast(U32(), hn::InterleaveLower(pairs, ab_lower, cd_lower));
  b = hn::BitCast(U32(), hn::InterleaveUpper(pairs, ab_lower, cd_lower));
  c = hn::BitCast(U32(), hn::InterleaveLower(pairs, ab_upper, cd_upper));
  d = hn::BitCast(U32(), hn::InterleaveUpper(pairs, ab_upper, cd_upper));
#else
  static_cast<void>(a), static_cast<void>(b), static_cast<void>(c), static_cast<void>(d);
#endif
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
