// Other operations on fp32 sums: scale them, and round them to bf16 as VCVTNE2PS2BF16 does (to nearest, ties
// to even, denormals to zero). Included after bf16_dot-inl.h, in the same way.
namespace strata::cpu::STRATA_BF16_TARGET {

inline constexpr int64_t kValues = 2 * kLanes;  // in a vector of pairs

#if STRATA_BF16_NATIVE

// Permutation that interleaves 16 first values and 16 second values into 16 pairs.
struct PairOrder {
  uint16_t from[kValues];
  constexpr PairOrder() : from{} {
    for (int64_t i = 0; i < kValues; ++i) from[i] = static_cast<uint16_t>(i / 2 + i % 2 * kLanes);
  }
};
inline constexpr PairOrder kPairOrder;

STRATA_BF16_INLINE Sums all_of(float value) {
  return _mm512_set1_ps(value);
}
STRATA_BF16_INLINE Sums product(Sums a, Sums b) {
  return _mm512_mul_ps(a, b);
}
// Rounds low, then high, to the nearest bf16.
STRATA_BF16_INLINE void round_in_order(BF16* to, const float* low, const float* high) {
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load_sums(high), load_sums(low))));
}
// Rounds low and high to the nearest bf16 and interleaves them: pair i is (low[i], high[i]).
STRATA_BF16_INLINE void round_to_pairs(BF16* to, const float* low, const float* high) {
  const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load_sums(high), load_sums(low)));
  const __m512i order = _mm512_loadu_si512(kPairOrder.from);
  _mm512_storeu_si512(to, _mm512_maskz_permutexvar_epi16(~__mmask32{0}, order, halves));
}

// to[r] = column r of the 16 x 16 pairs at `from`; `stride` values between rows of `to`.
STRATA_BF16_INLINE void transpose_pairs(BF16* to, int64_t stride, const BF16* from) {
  constexpr __mmask16 kAll = 0xffff;
  constexpr __mmask8 kAllWide = 0xff;
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = load_pairs(from + i * kValues);
  // Within 128-bit blocks: interleave two rows, then four.
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_maskz_unpacklo_epi32(kAll, a[i], a[i + 1]);
    b[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_maskz_unpacklo_epi64(kAllWide, b[i], b[i + 2]);
    a[i + 1] = _mm512_maskz_unpackhi_epi64(kAllWide, b[i], b[i + 2]);
    a[i + 2] = _mm512_maskz_unpacklo_epi64(kAllWide, b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_maskz_unpackhi_epi64(kAllWide, b[i + 1], b[i + 3]);
  }
  // Across blocks: block i of a[4 r + c] has column 4 i + c of the rows 4 r ….
  for (int c = 0; c < 4; ++c) {
    const __m512i even0 = _mm512_maskz_shuffle_i32x4(kAll, a[c], a[4 + c], 0x88);
    const __m512i odd0 = _mm512_maskz_shuffle_i32x4(kAll, a[c], a[4 + c], 0xdd);
    const __m512i even1 = _mm512_maskz_shuffle_i32x4(kAll, a[8 + c], a[12 + c], 0x88);
    const __m512i odd1 = _mm512_maskz_shuffle_i32x4(kAll, a[8 + c], a[12 + c], 0xdd);
    _mm512_storeu_si512(to + c * stride, _mm512_maskz_shuffle_i32x4(kAll, even0, even1, 0x88));
    _mm512_storeu_si512(to + (4 + c) * stride, _mm512_maskz_shuffle_i32x4(kAll, odd0, odd1, 0x88));
    _mm512_storeu_si512(to + (8 + c) * stride, _mm512_maskz_shuffle_i32x4(kAll, even0, even1, 0xdd));
    _mm512_storeu_si512(to + (12 + c) * stride, _mm512_maskz_shuffle_i32x4(kAll, odd0, odd1, 0xdd));
  }
}

#else

STRATA_BF16_INLINE Sums all_of(float value) {
  Sums sums;
  for (float& lane : sums.lane) lane = value;
  return sums;
}
STRATA_BF16_INLINE Sums product(const Sums& a, const Sums& b) {
  Sums sums;
  for (int64_t i = 0; i < kLanes; ++i) sums.lane[i] = a.lane[i] * b.lane[i];
  return sums;
}
STRATA_BF16_INLINE BF16 rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return BF16(flushed(bits));
}
STRATA_BF16_INLINE void round_in_order(BF16* to, const float* low, const float* high) {
  for (int64_t i = 0; i < kLanes; ++i) {
    to[i] = rounded(low[i]);
    to[kLanes + i] = rounded(high[i]);
  }
}
STRATA_BF16_INLINE void round_to_pairs(BF16* to, const float* low, const float* high) {
  for (int64_t i = 0; i < kLanes; ++i) {
    to[2 * i] = rounded(low[i]);
    to[2 * i + 1] = rounded(high[i]);
  }
}

STRATA_BF16_INLINE void transpose_pairs(BF16* to, int64_t stride, const BF16* from) {
  for (int64_t r = 0; r < kLanes; ++r) {
    for (int64_t i = 0; i < kLanes; ++i) {
      to[r * stride + 2 * i] = from[i * kValues + 2 * r];
      to[r * stride + 2 * i + 1] = from[i * kValues + 2 * r + 1];
    }
  }
}

#endif

}  // namespace strata::cpu::STRATA_BF16_TARGET
