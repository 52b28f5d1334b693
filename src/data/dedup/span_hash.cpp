#include "data/dedup/span_hash.h"

#include <algorithm>

// Products of 64 bits and gathered loads make it worth while, which AVX-512 has.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3_DL | HWY_NEON | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/dedup/span_hash.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::data::dedup {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_AVX3

size_t HashSpans(const uint8_t*, size_t, const uint32_t*, size_t, size_t, uint64_t*) {
  return 0;
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<uint64_t>;
using DS = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using M = hn::Mask<D>;

// As Yann Collet's specification of xxHash has them.
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu,
                   kPrime3 = 0x165667B19E3779F9u, kPrime4 = 0x85EBCA77C2B2AE63u,
                   kPrime5 = 0x27D4EB2F165667C5u;

template <int kBits>
HWY_INLINE V rotate(V v) {
  return hn::RotateRight<64 - kBits>(v);
}
HWY_INLINE V times(V v, uint64_t prime) {
  return hn::Mul(v, hn::Set(D(), prime));
}
HWY_INLINE V plus(V v, uint64_t number) {
  return hn::Add(v, hn::Set(D(), number));
}
HWY_INLINE V round(V accumulator, V input) {
  return times(rotate<31>(hn::Add(accumulator, times(input, kPrime2))), kPrime1);
}
HWY_INLINE M bit(V v, uint64_t of) {
  return hn::TestBit(v, hn::Set(D(), of));
}

// The spans of one vector: `at` where they begin, `size` at least 8.
class Spans {
 public:
  HWY_INLINE Spans(const uint8_t* text, size_t text_size, V at, V size)
      : text_(text), last_(hn::Set(D(), text_size - 8)), at_(at), size_(size) {}

  HWY_INLINE V hash() const {
    const D d;
    V hash = hn::Set(d, kPrime5);
    const V blocks = hn::ShiftRight<5>(size_);
    if (const M any = greater(blocks, 0); !hn::AllFalse(d, any)) {
      hash = hn::IfThenElse(any, of_blocks(blocks), hash);
    }
    hash = hn::Add(hash, size_);
    const V behind = hn::Add(at_, hn::And(size_, hn::Set(d, ~uint64_t{31})));
    const V eights = hn::And(hn::ShiftRight<3>(size_), hn::Set(d, 3));
    for (uint64_t i = 0; i < 3; ++i) {
      const V mixed = hn::Xor(hash, round(hn::Zero(d), load(plus(behind, 8 * i))));
      hash = hn::IfThenElse(greater(eights, i), plus(times(rotate<27>(mixed), kPrime1), kPrime4), hash);
    }
    return final_bits(of_rest(hash));
  }

 private:
  HWY_INLINE static M greater(V v, uint64_t than) {
    return hn::RebindMask(D(), hn::Gt(hn::BitCast(DS(), v), hn::Set(DS(), static_cast<int64_t>(than))));
  }
  // Lanes that are not used may lie anywhere.
  HWY_INLINE V load(V offset) const {
    return hn::GatherOffset(D(), reinterpret_cast<const uint64_t*>(text_),
                            hn::BitCast(DS(), hn::Min(offset, last_)));
  }

  HWY_INLINE V of_blocks(V blocks) const {
    const D d;
    V lane[4] = {hn::Set(d, kPrime1 + kPrime2), hn::Set(d, kPrime2), hn::Zero(d),
                 hn::Set(d, uint64_t{0} - kPrime1)};
    V at = at_;
    for (uint64_t block = 0;; ++block) {
      const M used = greater(blocks, block);
      if (hn::AllFalse(d, used)) break;
      for (V& one : lane) {
        one = hn::IfThenElse(used, round(one, load(at)), one);
        at = plus(at, 8);
      }
    }
    V hash = hn::Add(hn::Add(rotate<1>(lane[0]), rotate<7>(lane[1])),
                     hn::Add(rotate<12>(lane[2]), rotate<18>(lane[3])));
    for (const V& one : lane) {
      hash = plus(times(hn::Xor(hash, round(hn::Zero(d), one)), kPrime1), kPrime4);
    }
    return hash;
  }

  // The last up to seven bytes: four, and one after another.
  HWY_INLINE V of_rest(V hash) const {
    const D d;
    const V number = hn::And(size_, hn::Set(d, 7));
    // The last eight bytes less those that were taken.
    const V taken = hn::ShiftLeft<3>(hn::And(hn::Sub(hn::Set(d, 8), number), hn::Set(d, 7)));
    V rest = hn::Shr(load(hn::Sub(hn::Add(at_, size_), hn::Set(d, 8))), taken);
    const M four = bit(size_, 4);
    const V mixed = hn::Xor(hash, times(hn::And(rest, hn::Set(d, 0xFFFFFFFFu)), kPrime1));
    hash = hn::IfThenElse(four, plus(times(rotate<23>(mixed), kPrime2), kPrime3), hash);
    rest = hn::IfThenElse(four, hn::ShiftRight<32>(rest), rest);
    const V ones = hn::And(size_, hn::Set(d, 3));
    for (uint64_t i = 0; i < 3; ++i) {
      const V one = hn::Xor(hash, times(hn::And(rest, hn::Set(d, 0xFF)), kPrime5));
      hash = hn::IfThenElse(greater(ones, i), times(rotate<11>(one), kPrime1), hash);
      rest = hn::ShiftRight<8>(rest);
    }
    return hash;
  }

  HWY_INLINE static V final_bits(V hash) {
    hash = times(hn::Xor(hash, hn::ShiftRight<33>(hash)), kPrime2);
    hash = times(hn::Xor(hash, hn::ShiftRight<29>(hash)), kPrime3);
    return hn::Xor(hash, hn::ShiftRight<32>(hash));
  }

  const uint8_t* text_;
  V last_, at_, size_;
};

size_t HashSpans(const uint8_t* text, size_t text_size, const uint32_t* begins, size_t words, size_t count,
                 uint64_t* out) {
  const D d;
  const hn::Rebind<uint32_t, D> narrow;
  const size_t lanes = hn::Lanes(d);
  // Words have a byte and a space: so many have eight bytes together.
  constexpr size_t kEnoughWords = 5;
  if (words < kEnoughWords) return 0;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V at = hn::PromoteTo(d, hn::LoadU(narrow, begins + i));
    const V next = hn::PromoteTo(d, hn::LoadU(narrow, begins + i + words));
    const V size = hn::Sub(hn::Sub(next, at), hn::Set(d, 1));
    hn::StoreU(Spans(text, text_size, at, size).hash(), d, out + i);
  }
  return i;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace strata::data::dedup
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::data::dedup {

HWY_EXPORT(HashSpans);

size_t hash_spans(std::string_view text, const uint32_t* begins, size_t words, std::span<uint64_t> out) {
  return HWY_DYNAMIC_DISPATCH(HashSpans)(reinterpret_cast<const uint8_t*>(text.data()), text.size(), begins,
                                         words, out.size(), out.data());
}

}  // namespace strata::data::dedup
#endif
