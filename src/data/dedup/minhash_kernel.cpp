#include "data/dedup/minhash_kernel.h"

#include <algorithm>
#include <bit>
#include <limits>

// AVX2, AVX-512, NEON and plain vectors for the rest; the best that the processor has is chosen at run time.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/dedup/minhash_kernel.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::data::dedup {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET <= HWY_AVX3

// LeastWide takes all hashes: it has 64-bit multiplication, or there are no vectors at all.
size_t HashesBeforeLowering(size_t count) {
  return count;
}
void LowerWide(const PermutationTable&, const uint64_t*, size_t, size_t, uint64_t*) {}

#endif
#if HWY_TARGET == HWY_SCALAR

// No vectors: the formula itself, which is also what least_permuted falls back to.
bool LeastWide(const PermutationTable&, const uint64_t*, size_t, bool, uint64_t*) {
  return false;
}

void LeastNarrow(const PermutationTable& table, const uint64_t* hashes, size_t count, bool first,
                 uint64_t* out) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (first) out[i] = ~uint64_t{0};
    for (size_t k = 0; k < count; ++k) {
      out[i] = std::min(out[i], table.value(hashes[k], i) & 0xFFFFFFFFu);
    }
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<uint64_t>;
using Signed = hn::RebindToSigned<Wide>;
using Half = hn::Repartition<uint32_t, Wide>;
using SignedHalf = hn::RebindToSigned<Half>;

// A hash in all lanes, and one vector of permutations: (hash * a + b) mod 2^64.
#if HWY_TARGET <= HWY_AVX3

using Hash = hn::Vec<Wide>;
HWY_INLINE Hash spread(uint64_t hash) {
  return hn::Set(Wide(), hash);
}

struct Permutations {
  hn::Vec<Wide> a, b;

  HWY_INLINE Permutations(const PermutationTable& table, size_t i)
      : a(hn::LoadU(Wide(), table.a.data() + i)), b(hn::LoadU(Wide(), table.b.data() + i)) {}

  HWY_INLINE hn::Vec<Wide> of(Hash hash) const { return hn::Add(hn::Mul(hash, a), b); }
};

#else

// From 32-bit multiplications, on processors without 64-bit ones.
struct Hash {
  hn::Vec<Half> low, high;
};
HWY_INLINE Hash spread(uint64_t hash) {
  return {hn::BitCast(Half(), hn::Set(Wide(), hash)), hn::BitCast(Half(), hn::Set(Wide(), hash >> 32))};
}

struct Permutations {
  hn::Vec<Half> a_low, a_high;
  hn::Vec<Wide> b;

  HWY_INLINE Permutations(const PermutationTable& table, size_t i)
      : a_low(hn::BitCast(Half(), hn::LoadU(Wide(), table.a.data() + i))),
        a_high(hn::BitCast(Half(), hn::ShiftRight<32>(hn::LoadU(Wide(), table.a.data() + i)))),
        b(hn::LoadU(Wide(), table.b.data() + i)) {}

  HWY_INLINE hn::Vec<Wide> of(Hash hash) const {
    const auto cross = hn::Add(hn::MulEven(hash.low, a_high), hn::MulEven(hash.high, a_low));
    return hn::Add(hn::Add(hn::MulEven(hash.low, a_low), hn::ShiftLeft<32>(cross)), b);
  }
};

#endif

// The table's b is one more than the permutation's, so v = hash*a + b + 1. With low = v mod 2^61 and q = v >>
// 61, low + q is the value + 1 if it is below 2^61; otherwise it is the value itself, the only case that
// would need a further subtraction. The top bits 011 are put before it: a sum of 2^61 or more makes it
// negative (odds of 2^-58), and so the minimum, which shows that it occurred. v = 2^64 - 1 + 1 wraps to 0 and
// yields the sum 0, less than any other that is not negative: seen in the minimum too. Returns false if a
// result may be wrong.
HWY_NOINLINE bool LeastWide(const PermutationTable& table, const uint64_t* hashes, size_t count, bool first,
                            uint64_t* out) {
  const Wide d;
  const Signed ds;
  const size_t lanes = hn::Lanes(d);
  const auto low_bits = hn::Set(d, kMersenne61);
  const auto top = hn::Set(d, uint64_t{3} << 61);
  const auto reduced = [&](hn::Vec<Wide> v) HWY_ATTR {
    return hn::BitCast(ds, hn::Add(hn::OrAnd(top, v, low_bits), hn::ShiftRight<61>(v)));
  };
  auto all = hn::Set(ds, std::numeric_limits<int64_t>::max());
  for (size_t i = 0; i < table.a.size(); i += 2 * lanes) {
    const Permutations p(table, i), r(table, i + lanes);
    auto p_least = hn::Set(ds, std::numeric_limits<int64_t>::max()), r_least = p_least;
    if (!first) {
      p_least = hn::BitCast(ds, hn::LoadU(d, out + i));
      r_least = hn::BitCast(ds, hn::LoadU(d, out + i + lanes));
    }
    for (size_t k = 0; k < count; ++k) {
      const auto hash = spread(hashes[k]);
      p_least = hn::Min(p_least, reduced(p.of(hash)));
      r_least = hn::Min(r_least, reduced(r.of(hash)));
    }
    hn::StoreU(hn::BitCast(d, p_least), d, out + i);
    hn::StoreU(hn::BitCast(d, r_least), d, out + i + lanes);
    all = hn::Min(all, hn::Min(p_least, r_least));
  }
  return hn::AllTrue(ds, hn::Gt(all, hn::BitCast(ds, top)));
}

// Like LeastWide(), with the whole modulus and 32 bits of it: (v + ((v mod 2^61 + q + 1) >> 61)) mod 2^61 of
// plain v, q.
HWY_NOINLINE void LeastNarrow(const PermutationTable& table, const uint64_t* hashes, size_t count, bool first,
                              uint64_t* out) {
  const Wide d;
  const Signed ds;
  const size_t lanes = hn::Lanes(d);
  const auto low_bits = hn::Set(d, kMersenne61);
  const auto one = hn::Set(d, 1);
  const auto narrow = hn::Set(d, 0xFFFFFFFFu);
  for (size_t i = 0; i < table.a.size(); i += lanes) {
    const Permutations p(table, i);
    auto least = hn::Set(ds, int64_t{1} << 32);
    if (!first) least = hn::BitCast(ds, hn::LoadU(d, out + i));
    for (size_t k = 0; k < count; ++k) {
      const auto v = hn::Sub(p.of(spread(hashes[k])), one);
      const auto sum = hn::Add(hn::And(v, low_bits), hn::ShiftRight<61>(v));
      const auto value = hn::And(hn::Add(sum, hn::ShiftRight<61>(hn::Add(sum, one))), low_bits);
      least = hn::Min(least, hn::BitCast(ds, hn::And(value, narrow)));
    }
    hn::StoreU(hn::BitCast(d, least), d, out + i);
  }
}

#if HWY_TARGET > HWY_AVX3

// Minima sink often among the first hashes.
size_t HashesBeforeLowering(size_t count) {
  return std::min<size_t>(count, 64);
}

// Lowers the minima in `out`, plain values, by more hashes. One that comes late seldom lowers any, and an
// estimate of its value's upper bits shows it. The value is v mod (2^61 - 1), v = hash*a + b mod 2^64, and
// modulo 2^32
//   high(v) = hash_low*a_high + hash_high*a_low + high(hash_low*a_low) + b_high + carry.
// With h1, h0 and a1, a0 the halves of hash_low and a_low, high(hash_low*a_low) is h1*a1 and less than 2^17
// more; one multiplication of 16-bit lanes yields h1*a1 within 2^16 to either side (its lower half is
// replaced by the upper half of h0*a0). So the sum with that result, without the carry, and with 3 * 2^16
// added is
// high(v) + e, 0 < e < 2^18, and a hash can lower a minimum only if this sum modulo 2^29, which leaves v's
// bits below 2^61, is less than the minimum's upper half + 2^18. Where the modulus makes v small, high(v) is
// 2^29 - 1 and the sum passes 2^29: less too.
struct UpperHalves {
  hn::Vec<Half> a_low, a_high, b;

  HWY_INLINE UpperHalves(const PermutationTable& table, size_t i)
      : a_low(hn::LoadU(Half(), table.a_low.data() + i)),
        a_high(hn::LoadU(Half(), table.a_high.data() + i)),
        b(hn::Add(hn::LoadU(Half(), table.b_high.data() + i), hn::Set(Half(), uint32_t{3} << 16))) {}

  HWY_INLINE hn::Vec<SignedHalf> of(hn::Vec<Half> hash_low, hn::Vec<Half> hash_high) const {
    const hn::Repartition<uint16_t, Half> quarters;
    const auto product = hn::MulHigh(hn::BitCast(quarters, hash_low), hn::BitCast(quarters, a_low));
    const auto cross = hn::Add(hn::Mul(hash_low, a_high), hn::Mul(hash_high, a_low));
    const auto sum = hn::Add(hn::Add(hn::BitCast(Half(), product), b), cross);
    return hn::BitCast(SignedHalf(), hn::And(sum, hn::Set(Half(), (uint32_t{1} << 29) - 1)));
  }
};

HWY_INLINE uint32_t bits_of(hn::Mask<SignedHalf> mask) {
  static_assert(hn::MaxLanes(SignedHalf()) <= 8);
  uint8_t bits[8];
  hn::StoreMaskBits(SignedHalf(), mask, bits);
  return bits[0];
}

// First lists the minima that each hash of a block may lower; a block has the number of hashes that preceded
// it. A branch at each hash would be mispredicted often.
HWY_NOINLINE void LowerWide(const PermutationTable& table, const uint64_t* hashes, size_t seen, size_t count,
                            uint64_t* out) {
  const Half d;
  const SignedHalf ds;
  const size_t lanes = hn::Lanes(d);
  struct {
    uint32_t hash, minima;  // a bit each
  } may_lower[PermutationTable::kTile];
  for (size_t i = 0; i < table.a.size(); i += 2 * lanes) {
    const UpperHalves p(table, i), r(table, i + lanes);
    for (size_t from = 0, size = 0; from < count; from += size) {
      size = std::min(seen + from, count - from);
      const auto bound_of = [&](size_t at) HWY_ATTR {
        const auto first = hn::LoadU(Wide(), out + at), second = hn::LoadU(Wide(), out + at + lanes / 2);
        const auto upper = hn::ConcatOdd(d, hn::BitCast(d, second), hn::BitCast(d, first));
        return hn::BitCast(ds, hn::Add(upper, hn::Set(d, uint32_t{1} << 18)));
      };
      const auto p_bound = bound_of(i), r_bound = bound_of(i + lanes);
      size_t found = 0;
      for (size_t k = from; k < from + size; ++k) {
        const auto low = hn::Set(d, static_cast<uint32_t>(hashes[k]));
        const auto high = hn::Set(d, static_cast<uint32_t>(hashes[k] >> 32));
        const uint32_t p_may = bits_of(hn::Lt(p.of(low, high), p_bound));
        const uint32_t r_may = bits_of(hn::Lt(r.of(low, high), r_bound));
        may_lower[found] = {static_cast<uint32_t>(k), p_may | r_may << lanes};
        found += may_lower[found].minima != 0;
      }
      for (size_t f = 0; f < found; ++f) {
        for (uint32_t minima = may_lower[f].minima; minima != 0; minima &= minima - 1) {
          const size_t j = i + static_cast<size_t>(std::countr_zero(minima));
          out[j] = std::min(out[j], table.value(hashes[may_lower[f].hash], j));
        }
      }
    }
  }
}

#endif
#endif
}  // namespace HWY_NAMESPACE
}  // namespace strata::data::dedup
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::data::dedup {

HWY_EXPORT(LeastWide);
HWY_EXPORT(HashesBeforeLowering);
HWY_EXPORT(LowerWide);
HWY_EXPORT(LeastNarrow);

PermutationTable::PermutationTable(std::span<const uint64_t> a_of, std::span<const uint64_t> b_of)
    : size_(a_of.size()) {
  const size_t filled = (a_of.size() + kGroup - 1) / kGroup * kGroup;
  for (size_t i = 0; i < filled; ++i) {
    const size_t from = std::min(i, a_of.size() - 1);
    a.push_back(a_of[from]);
    b.push_back(b_of[from] + 1);
    a_low.push_back(static_cast<uint32_t>(a_of[from]));
    a_high.push_back(static_cast<uint32_t>(a_of[from] >> 32));
    b_high.push_back(static_cast<uint32_t>(b_of[from] >> 32));
  }
}

namespace {

void least_narrow(const PermutationTable& table, std::span<const uint64_t> hashes, uint64_t* out) {
  for (size_t at = 0; at < hashes.size(); at += PermutationTable::kTile) {
    HWY_DYNAMIC_DISPATCH(LeastNarrow)
    (table, hashes.data() + at, std::min(PermutationTable::kTile, hashes.size() - at), at == 0, out);
  }
}

void least_wide(const PermutationTable& table, std::span<const uint64_t> hashes, uint64_t* out) {
  bool good = true;
  for (size_t at = 0; at < hashes.size(); at += PermutationTable::kTile) {
    good &= HWY_DYNAMIC_DISPATCH(LeastWide)(
        table, hashes.data() + at, std::min(PermutationTable::kTile, hashes.size() - at), at == 0, out);
  }
  for (size_t i = 0; i < table.a.size(); ++i) out[i] = (out[i] & kMersenne61) - 1;
  if (good) return;
  for (size_t i = 0; i < table.a.size(); ++i) {
    out[i] = ~uint64_t{0};
    for (const uint64_t hash : hashes) {
      out[i] = std::min(out[i], table.value(hash, i));
    }
  }
}

}  // namespace

void least_permuted(const PermutationTable& table, std::span<const uint64_t> hashes, bool narrow,
                    uint64_t* out) {
  if (narrow) return least_narrow(table, hashes, out);
  const size_t first = HWY_DYNAMIC_DISPATCH(HashesBeforeLowering)(hashes.size());
  least_wide(table, hashes.first(first), out);
  for (size_t at = first; at < hashes.size(); at += PermutationTable::kTile) {
    HWY_DYNAMIC_DISPATCH(LowerWide)
    (table, hashes.data() + at, at, std::min(PermutationTable::kTile, hashes.size() - at), out);
  }
}

}  // namespace strata::data::dedup
#endif
