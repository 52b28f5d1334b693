#include "quantize/tiles.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/tiles.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "quantize/philox-inl.h"
#include "quantize/round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

// Elements whose random bits are made together.
inline constexpr int64_t kRandomRun = 512;

template <typename Rounding>
void encode_vectors(const Rounding& round, const float* in, int64_t n, uint8_t* codes, const uint32_t* words) {
  simd::HWY_NAMESPACE::for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    store_bytes(round(load(in + i, span), words + i), codes + i, span);
  });
}

void EncodeRun(const FormatSpec& spec, const float* in, int64_t n, uint8_t* codes, const StochasticBits* stochastic,
               int64_t first) {
  const bool pairs = spec.bits() == 4;
  uint8_t buffer[kRandomRun];
  uint32_t words[kRandomRun + kRandomMargin];
  for (int64_t done = 0; done < n; done += kRandomRun) {
    const int64_t count = std::min(kRandomRun, n - done);
    uint8_t* const to = pairs ? buffer : codes + done;
    if (stochastic != nullptr) {
      encode_vectors(Stochastic(spec), in + done, count, to, random_words(*stochastic, first + done, count, words));
    } else {
      encode_vectors(Nearest(spec), in + done, count, to, words);
    }
    if (!pairs) continue;
    for (int64_t i = 0; i + 1 < count; i += 2)
      codes[(done + i) / 2] = static_cast<uint8_t>(buffer[i] | buffer[i + 1] << 4);
    if (count % 2 != 0) codes[(done + count) / 2] = buffer[count - 1];
  }
}

template <typename T>
void load_tile(const T* data, int64_t stride, Tile* tile) {
  const int64_t rows = tile->rows, columns = tile->columns;
  for (int64_t row = 0; row < rows; ++row) {
    float* const to = tile->values + row * kTile;
    const T* const from = data + row * stride;
    if (columns == kTile) {
      for (int64_t i = 0; i < kTile; i += lanes()) hn::Store(load(from + i, Whole()), F32(), to + i);
      continue;
    }
    simd::HWY_NAMESPACE::for_vectors(columns, [&](int64_t i, auto span) HWY_ATTR { store(to + i, load(from + i, span), span); });
    std::fill(to + columns, to + filled(columns), 0.0f);
  }
  for (int64_t row = rows; row < filled(rows); ++row)
    std::fill(tile->values + row * kTile, tile->values + row * kTile + filled(columns), 0.0f);
}
void LoadTile(const void* data, DType dtype, int64_t stride, Tile* tile) {
  if (dtype == DType::kBF16) return load_tile(static_cast<const BF16*>(data), stride, tile);
  load_tile(static_cast<const float*>(data), stride, tile);
}

// Magnitudes compare as integers, NaN above infinity.
HWY_INLINE IntVector magnitude(Vector v) {
  return hn::And(hn::BitCast(I32(), v), hn::Set(I32(), 0x7fffffff));
}
HWY_INLINE float greatest_lane(IntVector v) {
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(I32(), v)));
}

template <int64_t kWidth>
void greatest_across(const Tile& tile, float* greatest) {
  const int64_t columns = filled(tile.columns);
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float* const from = tile.values + row * kTile;
    for (int64_t begin = 0; begin < columns; begin += kWidth) {
      IntVector most = hn::Zero(I32());
      for (int64_t i = begin; i < std::min(begin + kWidth, columns); i += lanes())
        most = hn::Max(most, magnitude(hn::Load(F32(), from + i)));
      greatest[row * (kTile / kWidth) + begin / kWidth] = greatest_lane(most);
    }
  }
}
void GreatestAcross(const Tile& tile, int64_t width, float* greatest) {
  if (width == 16) return greatest_across<16>(tile, greatest);
  if (width == 32) return greatest_across<32>(tile, greatest);
  greatest_across<128>(tile, greatest);
}

void GreatestDown(const Tile& tile, int64_t height, float* greatest) {
  const int64_t columns = filled(tile.columns);
  for (int64_t begin = 0; begin < tile.rows; begin += height) {
    const int64_t end = std::min(begin + height, tile.rows);
    float* const to = greatest + begin / height * kTile;
    for (int64_t i = 0; i < columns; i += lanes()) {
      IntVector most = hn::Zero(I32());
      for (int64_t row = begin; row < end; ++row)
        most = hn::Max(most, magnitude(hn::Load(F32(), tile.values + row * kTile + i)));
      hn::Store(hn::BitCast(F32(), most), F32(), to + i);
    }
  }
}

template <bool kDivide>
HWY_INLINE Vector scaled(Vector v, Vector factor) {
  if constexpr (kDivide) return hn::Div(v, factor);
  return hn::Mul(v, factor);
}

template <bool kDivide, typename Rounding>
void encode_tile(const Rounding& round, const Tile& tile, const StochasticBits* stochastic, bool across,
                 int64_t height, int64_t width, const float* factors, Codes* codes) {
  const int64_t columns = filled(tile.columns);
  uint32_t words_of_row[kTile + kRandomMargin];
  for (int64_t row = 0; row < tile.rows; ++row) {
    const uint32_t* words = words_of_row;
    if constexpr (Rounding::kRandom)
      words = random_words(*stochastic, tile.element + row * tile.pitch, columns, words_of_row);
    const float* const from = tile.values + row * kTile;
    uint8_t* const to = codes->at + row * kTile;
    if (across) {
      const float* const of_row = factors + row / height * (kTile / width);
      for (int64_t begin = 0; begin < columns; begin += width) {
        const Vector factor = constant(of_row[begin / width]);
        for (int64_t i = begin; i < std::min(begin + width, columns); i += lanes())
          store_bytes(round(scaled<kDivide>(hn::Load(F32(), from + i), factor), words + i), to + i, Whole());
      }
    } else {
      const float* const of_row = factors + row / height * kTile;
      for (int64_t i = 0; i < columns; i += lanes()) {
        const Vector factor = hn::Load(F32(), of_row + i);
        store_bytes(round(scaled<kDivide>(hn::Load(F32(), from + i), factor), words + i), to + i, Whole());
      }
    }
  }
  for (int64_t row = tile.rows; row < filled(tile.rows); ++row)
    std::memset(codes->at + row * kTile, 0, static_cast<size_t>(columns));
}

void EncodeTile(const FormatSpec& spec, const Tile& tile, const Encoding& encoding, bool across, int64_t height,
                int64_t width, const float* factors, Codes* codes) {
  const StochasticBits* const random = encoding.stochastic;
  if (random != nullptr) {
    const Stochastic round(spec);
    if (encoding.divide) return encode_tile<true>(round, tile, random, across, height, width, factors, codes);
    return encode_tile<false>(round, tile, random, across, height, width, factors, codes);
  }
  const Nearest round(spec);
  if (encoding.divide) return encode_tile<true>(round, tile, random, across, height, width, factors, codes);
  encode_tile<false>(round, tile, random, across, height, width, factors, codes);
}

// Sixteen rows of sixteen bytes: four rounds of interleaving row i with row i + 8.
void transpose_16(const uint8_t* from, uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t row = 0; row < 16; ++row) {
    for (int64_t column = 0; column < 16; ++column) to[column * kTile + row] = from[row * kTile + column];
  }
#else
  const hn::FixedTag<uint8_t, 16> d;
  using V = hn::Vec<decltype(d)>;
  V a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = hn::Load(d, from + i * kTile);
  const auto interleave = [&](const V* x, V* y) HWY_ATTR {
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = hn::InterleaveLower(d, x[i], x[i + 8]);
      y[2 * i + 1] = hn::InterleaveUpper(d, x[i], x[i + 8]);
    }
  };
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
  interleave(b, a);
  for (int i = 0; i < 16; ++i) hn::Store(a[i], d, to + i * kTile);
#endif
}

void Transpose(const Codes& from, int64_t rows, int64_t columns, Codes* to) {
  for (int64_t row = 0; row < rows; row += kFill) {
    for (int64_t column = 0; column < columns; column += kFill)
      transpose_16(from.at + row * kTile + column, to->at + column * kTile + row);
  }
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::quantize::tiles {

HWY_EXPORT(EncodeRun);
HWY_EXPORT(LoadTile);
HWY_EXPORT(GreatestAcross);
HWY_EXPORT(GreatestDown);
HWY_EXPORT(EncodeTile);
HWY_EXPORT(Transpose);

void encode_run(Format format, const float* in, int64_t n, uint8_t* codes, const StochasticBits* stochastic,
                int64_t first) {
  HWY_DYNAMIC_DISPATCH(EncodeRun)(spec_of(format), in, n, codes, stochastic, first);
}
void load(const void* data, DType dtype, int64_t stride, Tile* tile) {
  HWY_DYNAMIC_DISPATCH(LoadTile)(data, dtype, stride, tile);
}
void greatest_across(const Tile& tile, int64_t width, float* greatest) {
  STRATA_CHECK(width == 16 || width == 32 || width == kTile, "no blocks of {}", width);
  HWY_DYNAMIC_DISPATCH(GreatestAcross)(tile, width, greatest);
}
void greatest_down(const Tile& tile, int64_t height, float* greatest) {
  HWY_DYNAMIC_DISPATCH(GreatestDown)(tile, height, greatest);
}
void encode_across(const Tile& tile, const Encoding& encoding, int64_t height, int64_t width, const float* factors,
                   Codes* codes) {
  HWY_DYNAMIC_DISPATCH(EncodeTile)(spec_of(encoding.format), tile, encoding, true, height, width, factors, codes);
}
void encode_down(const Tile& tile, const Encoding& encoding, int64_t height, const float* factors, Codes* codes) {
  HWY_DYNAMIC_DISPATCH(EncodeTile)(spec_of(encoding.format), tile, encoding, false, height, kTile, factors, codes);
}
void transpose(const Codes& from, int64_t rows, int64_t columns, Codes* to) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, filled(rows), filled(columns), to);
}

void pack_pairs(const uint8_t* codes, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i + 1 < n; i += 2) out[i / 2] = static_cast<uint8_t>(codes[i] | codes[i + 1] << 4);
  if (n % 2 != 0) out[n / 2] = codes[n - 1];
}

}  // namespace strata::quantize::tiles
#endif
