#include "data/dedup/span_hash.h"

#include <algorithm>

// 64-bit multiplication and gathered loads make it worthwhile; AVX-512 has both.
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

// Two vectors side by side: each hash is one long chain of multiplications, and one takes many cycles.
struct Pair {
  V v[2];
};
template <typename F>
HWY_INLINE Pair each(const F& f) {
  return {f(0), f(1)};
}
HWY_INLINE Pair rounds(const Pair& accumulator, const Pair& input) {
  return each([&](int k) HWY_ATTR { return round(accumulator.v[k], input.v[k]); });
}
HWY_INLINE Pair all(uint64_t number) {
  return each([&](int) HWY_ATTR { return hn::Set(D(), number); });
}

// The spans of two vectors: `at` where they begin, `size` at least 8.
class Spans {
 public:
  HWY_INLINE Spans(const uint8_t* text, size_t text_size, const Pair& at, const Pair& size)
      : text_(text), last_(hn::Set(D(), text_size - 8)), at_(at), size_(size) {}

  HWY_INLINE Pair hash() const {
    const D d;
    Pair hash = all(kPrime5);
    const Pair blocks = each([&](int k) HWY_ATTR { return hn::ShiftRight<5>(size_.v[k]); });
    if (!none_above(blocks, 0)) {
      const Pair long_ones = of_blocks(blocks);
      hash = each(
          [&](int k) HWY_ATTR { return hn::IfThenElse(greater(blocks.v[k], 0), long_ones.v[k], hash.v[k]); });
    }
    hash = each([&](int k) HWY_ATTR { return hn::Add(hash.v[k], size_.v[k]); });
    const Pair remaining = each(
        [&](int k) HWY_ATTR { return hn::Add(at_.v[k], hn::And(size_.v[k], hn::Set(d, ~uint64_t{31}))); });
    const Pair eights =
        each([&](int k) HWY_ATTR { return hn::And(hn::ShiftRight<3>(size_.v[k]), hn::Set(d, 3)); });
#pragma GCC unroll 3
    for (uint64_t i = 0; i < 3; ++i) {
      const Pair input = each([&](int k) HWY_ATTR { return load(plus(remaining.v[k], 8 * i)); });
      hash = each([&](int k) HWY_ATTR {
        const V mixed = hn::Xor(hash.v[k], round(hn::Zero(d), input.v[k]));
        return hn::IfThenElse(greater(eights.v[k], i), plus(times(rotate<27>(mixed), kPrime1), kPrime4),
                              hash.v[k]);
      });
    }
    return final_bits(of_rest(hash));
  }

 private:
  HWY_INLINE static M greater(V v, uint64_t than) {
    return hn::RebindMask(D(), hn::Gt(hn::BitCast(DS(), v), hn::Set(DS(), static_cast<int64_t>(than))));
  }
  HWY_INLINE static bool none_above(const Pair& of, uint64_t than) {
    return hn::AllFalse(D(), hn::Or(greater(of.v[0], than), greater(of.v[1], than)));
  }
  // Unused lanes may hold any offset.
  HWY_INLINE V load(V offset) const {
    return hn::GatherOffset(D(), reinterpret_cast<const uint64_t*>(text_),
                            hn::BitCast(DS(), hn::Min(offset, last_)));
  }

  HWY_INLINE Pair of_blocks(const Pair& blocks) const {
    Pair lane[4] = {all(kPrime1 + kPrime2), all(kPrime2), all(0), all(uint64_t{0} - kPrime1)};
    Pair at = at_;
    for (uint64_t block = 0; !none_above(blocks, block); ++block) {
#pragma GCC unroll 4
      for (Pair& one : lane) {  // in registers
        const Pair next = rounds(one, each([&](int k) HWY_ATTR { return load(at.v[k]); }));
        one = each([&](int k)
                       HWY_ATTR { return hn::IfThenElse(greater(blocks.v[k], block), next.v[k], one.v[k]); });
        at = each([&](int k) HWY_ATTR { return plus(at.v[k], 8); });
      }
    }
    Pair hash = each([&](int k) HWY_ATTR {
      return hn::Add(hn::Add(rotate<1>(lane[0].v[k]), rotate<7>(lane[1].v[k])),
                     hn::Add(rotate<12>(lane[2].v[k]), rotate<18>(lane[3].v[k])));
    });
#pragma GCC unroll 4
    for (const Pair& one : lane) {
      const Pair mixed = rounds(all(0), one);
      hash =
          each([&](int k) HWY_ATTR { return plus(times(hn::Xor(hash.v[k], mixed.v[k]), kPrime1), kPrime4); });
    }
    return hash;
  }

  // The last up to seven bytes: four, and one after another.
  HWY_INLINE Pair of_rest(Pair hash) const {
    const D d;
    Pair rest = each([&](int k) HWY_ATTR {
      const V number = hn::And(size_.v[k], hn::Set(d, 7));
      // The last eight bytes less those that were taken.
      const V taken = hn::ShiftLeft<3>(hn::And(hn::Sub(hn::Set(d, 8), number), hn::Set(d, 7)));
      return hn::Shr(load(hn::Sub(hn::Add(at_.v[k], size_.v[k]), hn::Set(d, 8))), taken);
    });
    hash = each([&](int k) HWY_ATTR {
      const V mixed = hn::Xor(hash.v[k], times(hn::And(rest.v[k], hn::Set(d, 0xFFFFFFFFu)), kPrime1));
      return hn::IfThenElse(bit(size_.v[k], 4), plus(times(rotate<23>(mixed), kPrime2), kPrime3), hash.v[k]);
    });
    rest = each([&](int k) HWY_ATTR {
      return hn::IfThenElse(bit(size_.v[k], 4), hn::ShiftRight<32>(rest.v[k]), rest.v[k]);
    });
#pragma GCC unroll 3
    for (uint64_t i = 0; i < 3; ++i) {
      hash = each([&](int k) HWY_ATTR {
        const V one = hn::Xor(hash.v[k], times(hn::And(rest.v[k], hn::Set(d, 0xFF)), kPrime5));
        const M used = greater(hn::And(size_.v[k], hn::Set(d, 3)), i);
        return hn::IfThenElse(used, times(rotate<11>(one), kPrime1), hash.v[k]);
      });
      rest = each([&](int k) HWY_ATTR { return hn::ShiftRight<8>(rest.v[k]); });
    }
    return hash;
  }

  HWY_INLINE static Pair final_bits(Pair hash) {
    hash = each([&](int k)
                    HWY_ATTR { return times(hn::Xor(hash.v[k], hn::ShiftRight<33>(hash.v[k])), kPrime2); });
    hash = each([&](int k)
                    HWY_ATTR { return times(hn::Xor(hash.v[k], hn::ShiftRight<29>(hash.v[k])), kPrime3); });
    return each([&](int k) HWY_ATTR { return hn::Xor(hash.v[k], hn::ShiftRight<32>(hash.v[k])); });
  }

  const uint8_t* text_;
  V last_;
  Pair at_, size_;
};

size_t HashSpans(const uint8_t* text, size_t text_size, const uint32_t* begins, size_t words, size_t count,
                 uint64_t* out) {
  const D d;
  const hn::Rebind<uint32_t, D> narrow;
  const size_t lanes = hn::Lanes(d);
  // A word takes at least a byte and a space: five of them have at least eight bytes together.
  constexpr size_t kEnoughWords = 5;
  if (words < kEnoughWords) return 0;
  const auto begin_of = [&](size_t i) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(narrow, begins + i)); };
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto from = [&](int k) { return i + static_cast<size_t>(k) * lanes; };
    const Pair at = each([&](int k) HWY_ATTR { return begin_of(from(k)); });
    const Pair size = each(
        [&](int k) HWY_ATTR { return hn::Sub(hn::Sub(begin_of(from(k) + words), at.v[k]), hn::Set(d, 1)); });
    const Pair hash = Spans(text, text_size, at, size).hash();
    hn::StoreU(hash.v[0], d, out + i);
    hn::StoreU(hash.v[1], d, out + i + lanes);
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
