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
#include "quantize/bytes-inl.h"
#include "quantize/philox-inl.h"
#include "quantize/round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

// Elements whose random bits are made together.
inline constexpr int64_t kRandomRun = 512;

template <typename Rounding>
void encode_vectors(const Rounding& round, const float* in, int64_t n, uint8_t* codes,
                    const uint32_t* words) {
  simd::HWY_NAMESPACE::for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    store_bytes(round(load(in + i, span), words + i), codes + i, span);
  });
}

void EncodeRun(const FormatSpec& spec, const float* in, int64_t n, uint8_t* codes,
               const StochasticBits* stochastic, int64_t first) {
  const bool pairs = spec.bits() == 4;
  alignas(64) uint8_t buffer[kRandomRun];
  uint32_t words[kRandomRun + kRandomMargin];
  for (int64_t done = 0; done < n; done += kRandomRun) {
    const int64_t count = std::min(kRandomRun, n - done);
    uint8_t* const to = pairs ? buffer : codes + done;
    if (stochastic != nullptr) {
      encode_vectors(Stochastic(spec), in + done, count, to,
                     random_words(*stochastic, first + done, count, words));
    } else {
      encode_vectors(Nearest<false>(spec), in + done, count, to, words);
    }
    if (pairs) pack_pairs(buffer, count, codes + done / 2);
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
    simd::HWY_NAMESPACE::for_vectors(
        columns, [&](int64_t i, auto span) HWY_ATTR { store(to + i, load(from + i, span), span); });
    std::fill(to + columns, to + kTile, 0.0f);
  }
  std::fill(tile->values + rows * kTile, tile->values + filled(rows) * kTile, 0.0f);
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
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float* const from = tile.values + row * kTile;
    for (int64_t begin = 0; begin < kTile; begin += kWidth) {
      IntVector most = hn::Zero(I32());
      for (int64_t i = begin; i < begin + kWidth; i += lanes())
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
  for (int64_t begin = 0; begin < tile.rows; begin += height) {
    const int64_t end = std::min(begin + height, tile.rows);
    float* const to = greatest + begin / height * kTile;
    for (int64_t i = 0; i < kTile; i += lanes()) {
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

// What the loops over a tile have in common.
struct Work {
  const Tile& tile;
  const StochasticBits* stochastic;
  int log_height, log_width;
  const float* factors;
};

HWY_INLINE void ask_for_row(const Tile& tile, int64_t row) {
  const std::byte* const at = tile.next + row * tile.next_stride_bytes;
  for (int64_t i = 0; i < tile.next_row_bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

// Whether whole lines of memory get `n` bytes of each row.
HWY_INLINE bool streams(const Output& output, int64_t n) {
  return output.stream &&
         (reinterpret_cast<uintptr_t>(output.codes) | static_cast<uintptr_t>(output.pitch | n)) % 64 == 0;
}

template <bool kDivide, typename Rounding>
void encode_across(const Rounding& round, const Work& work, Output output, bool pairs) {
  const Tile& tile = work.tile;
  const int64_t columns = filled(tile.columns), step = lanes();
  const bool direct = !pairs && tile.columns == columns, stream = direct && streams(output, columns);
  const BytesOfQuad bytes_of;
  alignas(64) uint8_t codes[kTile];
  uint32_t random[kTile + kRandomMargin];
  const uint32_t* words = random;
  for (int64_t row = 0; row < tile.rows; ++row) {
    if constexpr (Rounding::kRandom)
      words = random_words(*work.stochastic, tile.element + row * tile.pitch, columns, random);
    const float* const from = tile.values + row * kTile;
    const float* const factors = work.factors + ((row >> work.log_height) * kTile >> work.log_width);
    uint8_t* const out = output.codes + row * output.pitch;
    uint8_t* const to = direct ? out : codes;
    ask_for_row(tile, row);
    const auto encode = [&](int64_t i) HWY_ATTR {
      const Vector factor = constant(factors[i >> work.log_width]);
      return round(scaled<kDivide>(hn::Load(F32(), from + i), factor), words + i);
    };
    for (int64_t i = 0; i < columns; i += 4 * step) {
      const IntVector a = encode(i), b = encode(i + step), c = encode(i + 2 * step), d = encode(i + 3 * step);
      if (stream) {
        bytes_of.store<true>(a, b, c, d, to + i);
      } else {
        bytes_of.store<false>(a, b, c, d, to + i);
      }
    }
    if (pairs) {
      pack_pairs(codes, tile.columns, out);
    } else if (!direct) {
      std::memcpy(out, codes, static_cast<size_t>(tile.columns));
    }
  }
}

// Codes of four rows come as one vector of words, the first row's in the lowest byte: four columns of four such words are
// sixteen codes of each column.
template <bool kDivide, typename Rounding>
void encode_down(const Rounding& round, const Work& work, Output output, bool pairs) {
  const Tile& tile = work.tile;
  const int64_t columns = filled(tile.columns), rows = filled(tile.rows), step = lanes();
  constexpr int64_t kRandomRow = kTile + kRandomMargin;
  HWY_ALIGN uint32_t quads[kTile / 4 * kTile];
  uint32_t random[4 * kRandomRow];
  const uint32_t* words[4] = {random, random, random, random};
  for (int64_t row = 0; row < rows; row += 4) {
    const float* const from = tile.values + row * kTile;
    const float* const factors = work.factors + (std::min(row, tile.rows - 1) >> work.log_height) * kTile;
    if constexpr (Rounding::kRandom) {
      for (int64_t k = 0; k < 4; ++k)
        words[k] = random_words(*work.stochastic, tile.element + (row + k) * tile.pitch, columns,
                                random + k * kRandomRow);
    }
    for (int64_t k = 0; k < 4; ++k) ask_for_row(tile, row + k);
    for (int64_t i = 0; i < columns; i += step) {
      const Vector factor = hn::Load(F32(), factors + i);
      const auto encode = [&](int64_t k) HWY_ATTR {
        return round(scaled<kDivide>(hn::Load(F32(), from + k * kTile + i), factor), words[k] + i);
      };
      hn::Store(quad(encode(0), encode(1), encode(2), encode(3)), U32(), quads + row / 4 * kTile + i);
    }
  }
  alignas(64) uint8_t codes[4][kTile];
  const bool stream = !pairs && streams(output, tile.rows);
  for (int64_t column = 0; column < tile.columns; column += 4) {
    const int64_t count = std::min<int64_t>(4, tile.columns - column);
    const bool direct = !pairs && !stream && count == 4 && tile.rows == rows;
    uint8_t* to[4];
    for (int64_t k = 0; k < 4; ++k) to[k] = direct ? output.codes + (column + k) * output.pitch : codes[k];
    for (int64_t row = 0; row < rows; row += 16) transpose_4(quads + row / 4 * kTile + column, to, row);
    for (int64_t k = 0; !direct && k < count; ++k) {
      uint8_t* const out = output.codes + (column + k) * output.pitch;
      if (stream) {
        stream_bytes(codes[k], tile.rows, out);
      } else if (pairs) {
        pack_pairs(codes[k], tile.rows, out);
      } else {
        std::memcpy(out, codes[k], static_cast<size_t>(tile.rows));
      }
    }
  }
}

template <bool kDivide, typename Rounding>
void encode_tile(const Rounding& round, const Work& work, bool across, Output output, bool pairs) {
  if (across) {
    encode_across<kDivide>(round, work, output, pairs);
  } else {
    encode_down<kDivide>(round, work, output, pairs);
  }
  if (output.stream) hwy::FlushStream();
}

void EncodeTile(const Tile& tile, const Encoding& encoding, bool across, int64_t height, int64_t width,
                const float* factors, Output output) {
  const FormatSpec spec = spec_of(encoding.format);
  const bool pairs = encoding.format == Format::kE2M1;
  const Work work{tile, encoding.stochastic, std::countr_zero(static_cast<uint64_t>(height)),
                  std::countr_zero(static_cast<uint64_t>(width)), factors};
  if (encoding.stochastic != nullptr) {
    const Stochastic round(spec);
    if (encoding.divide) return encode_tile<true>(round, work, across, output, pairs);
    return encode_tile<false>(round, work, across, output, pairs);
  }
  if (encoding.in_range) {
    const Nearest<true> round(spec);
    if (encoding.divide) return encode_tile<true>(round, work, across, output, pairs);
    return encode_tile<false>(round, work, across, output, pairs);
  }
  const Nearest<false> round(spec);
  if (encoding.divide) return encode_tile<true>(round, work, across, output, pairs);
  encode_tile<false>(round, work, across, output, pairs);
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
void encode_across(const Tile& tile, const Encoding& encoding, int64_t height, int64_t width,
                   const float* factors, Output output) {
  HWY_DYNAMIC_DISPATCH(EncodeTile)(tile, encoding, true, height, width, factors, output);
}
void encode_down(const Tile& tile, const Encoding& encoding, int64_t height, const float* factors,
                 Output output) {
  HWY_DYNAMIC_DISPATCH(EncodeTile)(tile, encoding, false, height, kTile, factors, output);
}

}  // namespace strata::quantize::tiles
#endif
