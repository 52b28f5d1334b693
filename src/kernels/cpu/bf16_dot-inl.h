// Sixteen fp32 sums of bf16 dot products, as VDPBF16PS computes them: by the instruction itself, and by a
// model in plain C++ with the same bits on any processor, so that kernels are tested everywhere. Included
// once for each by for_each_bf16_target.h, which defines the namespace STRATA_BF16_TARGET.
//
// A pair is two adjacent bf16 values in one 32-bit word, the first in memory in the lower half. The
// instruction (Intel's Software Developer's Manual, "VDPBF16PS", section Operation): sum += a.high · b.high,
// then sum += a.low · b.low, each a fused multiply-add rounded to nearest, ties to even. Denormal operands
// are treated as zero, denormal results become zero.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace strata::cpu::STRATA_BF16_TARGET {

// Lanes of a vector of sums; pairs in a vector of pairs.
inline constexpr int64_t kLanes = 16;

#if STRATA_BF16_NATIVE

using Sums = __m512;
using Pairs = __m512i;

STRATA_BF16_INLINE Sums no_sums() {
  return _mm512_setzero_ps();
}
STRATA_BF16_INLINE Sums load_sums(const float* from) {
  return _mm512_loadu_ps(from);
}
STRATA_BF16_INLINE void store_sums(float* to, Sums sums) {
  _mm512_storeu_ps(to, sums);
}
STRATA_BF16_INLINE Sums add(Sums a, Sums b) {
  return _mm512_add_ps(a, b);
}
// sums · factors + base, rounded once.
STRATA_BF16_INLINE Sums multiply_add(Sums sums, Sums factors, Sums base) {
  return _mm512_fmadd_ps(sums, factors, base);
}
STRATA_BF16_INLINE Sums multiply(Sums a, Sums b) {
  return _mm512_mul_ps(a, b);
}
STRATA_BF16_INLINE Sums same_number(float value) {
  return _mm512_set1_ps(value);
}
STRATA_BF16_INLINE Pairs load_pairs(const BF16* from) {
  return _mm512_loadu_si512(from);
}
// Broadcasts the pair at `from` to all lanes.
STRATA_BF16_INLINE Pairs same_pair(const BF16* from) {
  int32_t word;
  std::memcpy(&word, from, sizeof word);
  return _mm512_set1_epi32(word);
}
STRATA_BF16_INLINE Sums dot(Sums sums, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

#else

struct Sums {
  float lane[kLanes];
};
struct Pairs {
  uint32_t lane[kLanes];
};

STRATA_BF16_INLINE Sums no_sums() {
  return {};
}
STRATA_BF16_INLINE Sums load_sums(const float* from) {
  Sums sums;
  std::memcpy(sums.lane, from, sizeof sums.lane);
  return sums;
}
STRATA_BF16_INLINE void store_sums(float* to, const Sums& sums) {
  std::memcpy(to, sums.lane, sizeof sums.lane);
}
STRATA_BF16_INLINE Sums add(const Sums& a, const Sums& b) {
  Sums sums;
  for (int64_t i = 0; i < kLanes; ++i) sums.lane[i] = a.lane[i] + b.lane[i];
  return sums;
}
STRATA_BF16_INLINE Sums multiply_add(const Sums& sums, const Sums& factors, const Sums& base) {
  Sums next;
  for (int64_t i = 0; i < kLanes; ++i) next.lane[i] = std::fma(sums.lane[i], factors.lane[i], base.lane[i]);
  return next;
}
STRATA_BF16_INLINE Sums multiply(const Sums& a, const Sums& b) {
  Sums product;
  for (int64_t i = 0; i < kLanes; ++i) product.lane[i] = a.lane[i] * b.lane[i];
  return product;
}
STRATA_BF16_INLINE Sums same_number(float value) {
  Sums all;
  for (float& lane : all.lane) lane = value;
  return all;
}
STRATA_BF16_INLINE Pairs load_pairs(const BF16* from) {
  Pairs pairs;
  std::memcpy(pairs.lane, from, sizeof pairs.lane);
  return pairs;
}
STRATA_BF16_INLINE Pairs same_pair(const BF16* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  Pairs pairs;
  for (int64_t i = 0; i < kLanes; ++i) pairs.lane[i] = word;
  return pairs;
}
// The value with these bits; a denormal becomes a zero of the same sign.
STRATA_BF16_INLINE float flushed(uint32_t bits) {
  const uint32_t kept = (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits;
  float value;
  std::memcpy(&value, &kept, sizeof value);
  return value;
}
// The product of the two bf16 values has 16 significant bits and is exact in fp32, so multiplying and adding
// round like the fused operation. (Except outside the range of normal values, which no test and no model
// comes near.)
STRATA_BF16_INLINE float fused(float sum, float a, float b) {
  const float next = sum + a * b;
  uint32_t bits;
  std::memcpy(&bits, &next, sizeof bits);
  return flushed(bits);
}
STRATA_BF16_INLINE Sums dot(const Sums& sums, const Pairs& a, const Pairs& b) {
  Sums next;
  for (int64_t i = 0; i < kLanes; ++i) {
    const float high =
        fused(sums.lane[i], flushed(a.lane[i] & 0xffff0000u), flushed(b.lane[i] & 0xffff0000u));
    next.lane[i] = fused(high, flushed(a.lane[i] << 16), flushed(b.lane[i] << 16));
  }
  return next;
}

#endif

}  // namespace strata::cpu::STRATA_BF16_TARGET
