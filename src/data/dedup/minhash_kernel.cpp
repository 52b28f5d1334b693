#include "data/dedup/minhash_kernel.h"

#include <algorithm>
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
#ifndef STRATA_MINHASH_SLACK
#define STRATA_MINHASH_SLACK
// LowerWide's estimates are too low by less than this: see there.
constexpr uint32_t kBelow = (3u << 16) + 1;
constexpr uint32_t kSlack = kBelow + (1u << 16);
#endif
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET <= HWY_AVX3

// Vectors have products of 64 bits here, or there are none: LeastWide takes all.
constexpr bool kLowers = false;
void LowerWide(const PermutationTable&, const uint64_t*, size_t, uint64_t*) {}

#else

constexpr bool kLowers = true;

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
      out[i] = std::min(out[i], permuted(hashes[k], table.a_plain[i], table.b_plain[i]) & 0xFFFFFFFFu);
    }
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<uint64_t>;
using Signed = hn::RebindToSigned<Wide>;
using Half = hn::Repartition<uint32_t, Wide>;

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

// From 32-bit products, where those of 64 bits are not the processor's.
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
// 61, low + q is the value + 1 wherever it is below 2^61, and the value itself where it is not, for which
// alone a further subtraction would be due. The top bits 011 are put before it: a sum of 2^61 or more makes
// it negative (odds of 2^-58), and so the minimum, which tells that it occurred. v = 2^64 - 1 + 1 wraps to 0
// and gives the sum 0, less than any other that is not negative: seen in the minimum too. Returns false where
// a result may be wrong.
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

// The same with the whole modulus and 32 bits of it: (v + ((v mod 2^61 + q + 1) >> 61)) mod 2^61 of plain v,
// q.
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

#endif
}  // namespace HWY_NAMESPACE
}  // namespace strata::data::dedup
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::data::dedup {

HWY_EXPORT(LeastWide);
HWY_EXPORT(LeastNarrow);

PermutationTable::PermutationTable(std::span<const uint64_t> a_of, std::span<const uint64_t> b_of)
    : a_plain(a_of.begin(), a_of.end()), b_plain(b_of.begin(), b_of.end()) {
  const size_t filled = (a_of.size() + kGroup - 1) / kGroup * kGroup;
  for (size_t i = 0; i < filled; ++i) {
    const size_t from = std::min(i, a_of.size() - 1);
    a.push_back(a_of[from]);
    b.push_back(b_of[from] + 1);
  }
}

void least_permuted(const PermutationTable& table, std::span<const uint64_t> hashes, bool narrow,
                    uint64_t* out) {
  constexpr size_t kTile = 2048;  // hashes that stay in the first cache through all permutations
  bool good = true;
  for (size_t at = 0; at < hashes.size(); at += kTile) {
    const uint64_t* tile = hashes.data() + at;
    const size_t count = std::min(kTile, hashes.size() - at);
    if (narrow) {
      HWY_DYNAMIC_DISPATCH(LeastNarrow)(table, tile, count, at == 0, out);
    } else {
      good &= HWY_DYNAMIC_DISPATCH(LeastWide)(table, tile, count, at == 0, out);
    }
  }
  if (narrow) return;
  for (size_t i = 0; i < table.size(); ++i) out[i] = (out[i] & kMersenne61) - 1;
  if (good) return;
  for (size_t i = 0; i < table.size(); ++i) {
    out[i] = ~uint64_t{0};
    for (const uint64_t hash : hashes) {
      out[i] = std::min(out[i], permuted(hash, table.a_plain[i], table.b_plain[i]));
    }
  }
}

}  // namespace strata::data::dedup
#endif
