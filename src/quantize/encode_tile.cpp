#include <algorithm>
#include <bit>
#include <cstring>

#include "quantize/tiles.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/encode_tile.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "quantize/philox-inl.h"
#include "quantize/quads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

// Factors of values; with Scaling::kReciprocal a factor + its rest = 1 / divisor to 47 bits.
struct Factors {
  const float* factors;
  const float* rest;
  HWY_INLINE Factors operator+(int64_t n) const { return {factors + n, rest + n}; }
};

// Operands of the loops over a tile.
struct Work {
  const Tile& tile;
  const StochasticBits* stochastic;
  int log_height;
  Factors factors;
};

enum class Scaling { kMultiply, kDivide, kReciprocal };

// The factor of consecutive values.
template <Scaling kScaling>
struct Factor {
  Vector factor, rest;
  static HWY_INLINE Factor same(Factors at) {
    if constexpr (kScaling == Scaling::kReciprocal) return {constant(*at.factors), constant(*at.rest)};
    return {constant(*at.factors), hn::Zero(F32())};
  }
  static HWY_INLINE Factor each(Factors at) {
    if constexpr (kScaling == Scaling::kReciprocal) {
      return {hn::Load(F32(), at.factors), hn::Load(F32(), at.rest)};
    } else {
      return {hn::Load(F32(), at.factors), hn::Zero(F32())};
    }
  }
  HWY_INLINE Vector operator()(const float* from) const {
    const Vector v = hn::Load(F32(), from);
    if constexpr (kScaling == Scaling::kDivide) return hn::Div(v, factor);
    if constexpr (kScaling == Scaling::kReciprocal) return hn::MulAdd(v, factor, hn::Mul(v, rest));
    return hn::Mul(v, factor);
  }
};

// Finds 1 / divisors as sums of two numbers, so that Scaling::kReciprocal rounds as a division does: its quotient may
// differ from the nearest fp32 number, but is on the same side of every tie of an 8-bit format, unless the last 20 bits of
// the divisor are ones (checked for every significand with the quotients next to every tie, 2026-11-28). Returns
// false where that, or an exponent for which the sum loses bits, asks for divisions.
HWY_INLINE bool find_reciprocals(const float* divisors, int64_t n, float* factors, float* rest) {
#if HWY_NATIVE_FMA
  const auto least = hn::Set(U32(), (127u - 78) << 23), spread = hn::Set(U32(), (2u * 78) << 23);
  const auto ones = hn::Set(U32(), 0xfffffu);
  auto wrong = hn::Zero(U32());
  for (int64_t i = 0; i < n; i += lanes()) {
    const auto in_use = hn::FirstN(F32(), static_cast<size_t>(n - i));
    const Vector divisor = hn::IfThenElse(in_use, hn::LoadU(F32(), divisors + i), constant(1.0f));
    const auto bits = hn::BitCast(U32(), divisor);
    // Rounded down, so that the rest is not negative: -0 stays -0.
    const Vector inverse = hn::Div(constant(1.0f), divisor), zero = hn::Zero(F32());
    const auto above = hn::Lt(hn::NegMulAdd(divisor, inverse, constant(1.0f)), zero);
    const auto one = hn::IfThenElseZero(hn::RebindMask(U32(), above), hn::Set(U32(), 1));
    const Vector factor = hn::BitCast(F32(), hn::Sub(hn::BitCast(U32(), inverse), one));
    hn::Store(factor, F32(), factors + i);
    hn::Store(hn::Mul(hn::NegMulAdd(divisor, factor, constant(1.0f)), inverse), F32(), rest + i);
    const auto all_ones = hn::Eq(hn::And(bits, ones), ones);
    wrong = hn::Or(wrong, hn::VecFromMask(U32(), hn::Or(all_ones, hn::Gt(hn::Sub(bits, least), spread))));
  }
  return hn::AllTrue(U32(), hn::Eq(wrong, hn::Zero(U32())));
#else
  static_cast<void>(divisors);
  static_cast<void>(n);
  static_cast<void>(factors);
  static_cast<void>(rest);
  return false;
#endif
}

// The random words of `n` elements of a row, at the place in `buffer` that is returned.
HWY_INLINE const uint32_t* words_of_row(const Work& work, int64_t row, int64_t n, uint32_t* buffer) {
  const Tile& tile = work.tile;
  StochasticBits bits = *work.stochastic;
  int64_t in_order = row;
  if (tile.places != nullptr) {
    // Rows that only fill the tile up have no place.
    const int32_t* const place = tile.places + 2 * std::min(row, tile.rows - 1);
    bits.step = static_cast<uint32_t>(place[0]);
    in_order = place[1];
  }
  const int64_t first = tile.element + in_order * tile.pitch;
  if (tile.runs.empty()) return random_words(bits, first, n, buffer);
  uint32_t words[kTile + kRandomMargin];
  for (size_t i = 0; i < tile.runs.size(); ++i) {
    const ColumnRun& run = tile.runs[i];
    const int64_t begin = std::max(run.begin, tile.column), all = tile.column + tile.columns;
    const int64_t end = i + 1 < tile.runs.size() ? std::min(tile.runs[i + 1].begin, all) : all;
    if (begin >= end) continue;
    const uint32_t* const made =
        random_words(bits, first + run.number + begin - run.begin, end - begin, words);
    std::memcpy(buffer + begin - tile.column, made, static_cast<size_t>(end - begin) * sizeof(uint32_t));
  }
  return buffer;
}

// While rows [row, row + n) of a tile are encoded: asks for the same share of the rows that output.asks names.
HWY_INLINE void ask_for_rows(const Tile& tile, const Output& output, int64_t row, int64_t n) {
  const int64_t count = output.ask_end - output.ask_begin, bytes = tile.next_row_bytes;
  const int64_t begin = output.ask_begin + (row * count >> kLogTile),
                end = output.ask_begin + ((row + n) * count >> kLogTile);
  for (int64_t i = begin; i < end; ++i) {
    const std::byte* const at = tile.next + i * tile.next_stride_bytes;
    for (int64_t j = 0; j < bytes; j += 256) {
      __builtin_prefetch(at + j, 0, 2);
      __builtin_prefetch(at + j + 64, 0, 2);
      __builtin_prefetch(at + j + 128, 0, 2);
      __builtin_prefetch(at + j + 192, 0, 2);
    }
  }
}

// Whether whole lines of memory get `n` bytes of each row.
HWY_INLINE bool streams(const Output& output, int64_t n) {
  return output.stream &&
         (reinterpret_cast<uintptr_t>(output.codes) | static_cast<uintptr_t>(output.pitch | n)) % 64 == 0;
}

template <int64_t kWidth, Scaling kScaling, typename Rounding>
void encode_across(const Rounding& round, const Work& work, const Output& output, bool pairs) {
  const Tile& tile = work.tile;
  const int64_t rows = tile.rows, columns = filled(tile.columns), step = lanes();
  const bool direct = !pairs && tile.columns == columns, stream = direct && streams(output, columns);
  const BytesOfQuad bytes_of;
  alignas(64) uint8_t codes[kTile];
  uint32_t random[kTile + kRandomMargin];
  for (int64_t row = 0; row < rows; ++row) {
    const uint32_t* row_words = random;
    if constexpr (Rounding::kRandom) row_words = words_of_row(work, row, columns, random);
    const uint32_t* const words[4] = {row_words, row_words + step, row_words + 2 * step,
                                      row_words + 3 * step};
    const float* const from = tile.values + row * kTile;
    const Factors factors = work.factors + (row >> work.log_height) * (kTile / kWidth);
    const auto of_row = Factor<kScaling>::same(factors);
    uint8_t* const out = output.codes + row * output.pitch;
    uint8_t* const to = direct ? out : codes;
    ask_for_rows(tile, output, row, 1);
    for (int64_t i = 0; i < columns; i += 4 * step) {
      const auto scaled = [&](int64_t k) HWY_ATTR {
        if constexpr (kWidth == kTile) return of_row(from + i + k * step);
        // Blocks are as wide as some of the four vectors, or as several quads.
        const int64_t block = i / kWidth + k * step / kWidth;
        return Factor<kScaling>::same(factors + block)(from + i + k * step);
      };
      const auto bytes = bytes_of(round(scaled(0), scaled(1), scaled(2), scaled(3), words, i));
      if (stream) {
        hn::Stream(bytes, U32(), reinterpret_cast<uint32_t*>(to + i));
      } else {
        hn::StoreU(bytes, U32(), reinterpret_cast<uint32_t*>(to + i));
      }
    }
    if (pairs) {
      pack_pairs(codes, tile.columns, out);
    } else if (!direct) {
      std::memcpy(out, codes, static_cast<size_t>(tile.columns));
    }
  }
}

// Rows whose codes of a column are one block of 128 bits.
inline constexpr int64_t kBand = 16;

// The codes of a column in a tile: of four columns the words are transposed, where vectors have that many.
template <bool kStream>
HWY_INLINE void copy_column(const uint32_t* quads, int64_t column, int64_t rows, uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t row = 0; row < rows; row += 4) std::memcpy(to + row, quads + row / 4 * kTile + column, 4);
#else
  const hn::FixedTag<uint32_t, 4> d;
  const uint32_t* const from = quads + (column & 3) * kTile + (column & ~int64_t{3});
  for (int64_t row = 0; row < rows; row += kBand) {
    const auto codes = hn::Load(d, from + row / 4 * kTile);
    auto* const words = reinterpret_cast<uint32_t*>(to + row);
    if constexpr (kStream) {
      hn::Stream(codes, d, words);
    } else {
      hn::StoreU(codes, d, words);
    }
  }
#endif
}
template <bool kStream>
HWY_INLINE void copy_columns(const uint32_t* quads, int64_t rows, int64_t columns, const Output& output) {
  // The constant lets the compiler unroll.
  for (int64_t column = 0; column < columns; ++column) {
    uint8_t* const to = output.codes + column * output.pitch;
    if (rows == kTile) {
      copy_column<kStream>(quads, column, kTile, to);
    } else {
      copy_column<kStream>(quads, column, rows, to);
    }
  }
}

template <Scaling kScaling, typename Rounding>
void encode_down(const Rounding& round, const Work& work, const Output& output, bool pairs) {
  const Tile& tile = work.tile;
  const int64_t rows = tile.rows, columns = filled(tile.columns), step = lanes();
  constexpr int64_t kRandomRow = kTile + kRandomMargin;
  HWY_ALIGN uint32_t quads[kTile / 4 * kTile];
  uint32_t random[Rounding::kRandom ? kBand * kRandomRow : 1];
  for (int64_t row = 0; row < rows; row += kBand) {
    const float* const from = tile.values + row * kTile;
    const Factors factors = work.factors + (row >> work.log_height) * kTile;
    const uint32_t* words[kBand];
    for (int64_t k = 0; k < kBand; ++k) {
      words[k] = random;
      if constexpr (Rounding::kRandom)
        words[k] = words_of_row(work, row + k, columns, random + k * kRandomRow);
    }
    ask_for_rows(tile, output, row, kBand);
    for (int64_t i = 0; i < columns; i += step) {
      const auto factor = Factor<kScaling>::each(factors + i);
      // No loop: the compiler would keep its vectors in memory.
      const auto four = [&](int64_t k) HWY_ATTR {
        const float* const at = from + 4 * k * kTile + i;
        return round(factor(at), factor(at + kTile), factor(at + 2 * kTile), factor(at + 3 * kTile),
                     words + 4 * k, i);
      };
      auto a = four(0), b = four(1), c = four(2), d = four(3);
      transpose_words(a, b, c, d);
      uint32_t* const to = quads + row / 4 * kTile + i;
      hn::Store(a, U32(), to);
      hn::Store(b, U32(), to + kTile);
      hn::Store(c, U32(), to + 2 * kTile);
      hn::Store(d, U32(), to + 3 * kTile);
    }
  }
  if (!pairs && rows % kBand == 0) {
    if (streams(output, rows)) return copy_columns<true>(quads, rows, tile.columns, output);
    return copy_columns<false>(quads, rows, tile.columns, output);
  }
  alignas(64) uint8_t codes[kTile];
  for (int64_t column = 0; column < tile.columns; ++column) {
    uint8_t* const to = output.codes + column * output.pitch;
    copy_column<false>(quads, column, rows, codes);
    if (pairs) {
      pack_pairs(codes, rows, to);
    } else {
      std::memcpy(to, codes, static_cast<size_t>(rows));
    }
  }
}

struct Direction {
  bool across;
  int64_t width;
};

template <Scaling kScaling, typename Rounding>
void encode(const Rounding& round, const Work& work, Direction direction, const Output& output, bool pairs) {
  if (!direction.across) return encode_down<kScaling>(round, work, output, pairs);
  if (direction.width == 16) return encode_across<16, kScaling>(round, work, output, pairs);
  if (direction.width == 32) return encode_across<32, kScaling>(round, work, output, pairs);
  encode_across<kTile, kScaling>(round, work, output, pairs);
}
// Rules that divide have blocks of kTile.
template <Scaling kScaling, typename Rounding>
void encode_wide(const Rounding& round, const Work& work, Direction direction, const Output& output) {
  if (!direction.across) return encode_down<kScaling>(round, work, output, false);
  encode_across<kTile, kScaling>(round, work, output, false);
}

template <int kMantissa>
void encode_finite(const Conversion& conversion, const FormatSpec& spec, Work work, Direction direction,
                   const Output& output, int64_t factors) {
  if (conversion.divide) {
    HWY_ALIGN float inverses[kTile], rest[kTile];
    if (!find_reciprocals(work.factors.factors, factors, inverses, rest))
      return encode_wide<Scaling::kDivide>(EachRounded<Nearest<false>>(spec), work, direction, output);
    work.factors = {inverses, rest};
    return encode_wide<Scaling::kReciprocal>(FiniteRounded<kMantissa, false>(spec), work, direction, output);
  }
  if (conversion.range == Range::kFits)
    return encode<Scaling::kMultiply>(FiniteRounded<kMantissa, false>(spec), work, direction, output, false);
  encode<Scaling::kMultiply>(FiniteRounded<kMantissa, true>(spec), work, direction, output, false);
}

void EncodeTile(const Tile& tile, const Conversion& conversion, bool across, int64_t height, int64_t width,
                const float* factors, Output output) {
  const FormatSpec spec = spec_of(conversion.format);
  const bool pairs = conversion.format == Format::kE2M1;
  const int log_height = std::countr_zero(static_cast<uint64_t>(height));
  const Work work{tile, conversion.stochastic, log_height, {factors, factors}};
  const Direction direction{across, width};
  // A tile has one factor a row or column where it divides, or one for all rows.
  const int64_t divisors = across ? (tile.rows + height - 1) / height : tile.columns;
  const auto by_vectors = [&](const auto& round) {
    if (conversion.divide) return encode_wide<Scaling::kDivide>(round, work, direction, output);
    encode<Scaling::kMultiply>(round, work, direction, output, pairs);
  };
  if (conversion.stochastic != nullptr) {
    by_vectors(EachRounded<Stochastic>(spec));
  } else if (conversion.range == Range::kUnknown || spec.sign != Sign::kSymmetric || spec.bits() == 6) {
    by_vectors(EachRounded<Nearest<false>>(spec));
  } else if (spec.mantissa_bits == 1) {
    encode<Scaling::kMultiply>(FiniteRounded<1, true>(spec), work, direction, output, pairs);
  } else if (spec.mantissa_bits == 2) {
    encode_finite<2>(conversion, spec, work, direction, output, divisors);
  } else {
    encode_finite<3>(conversion, spec, work, direction, output, divisors);
  }
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::quantize::tiles {

HWY_EXPORT(EncodeTile);

void encode_across(const Tile& tile, const Conversion& conversion, int64_t height, int64_t width,
                   const float* factors, Output output) {
  HWY_DYNAMIC_DISPATCH(EncodeTile)(tile, conversion, true, height, width, factors, output);
}
void encode_down(const Tile& tile, const Conversion& conversion, int64_t height, const float* factors,
                 Output output) {
  HWY_DYNAMIC_DISPATCH(EncodeTile)(tile, conversion, false, height, kTile, factors, output);
}

}  // namespace strata::quantize::tiles
#endif
