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
  for_vectors(n, [&](int64_t i, auto span)
                     HWY_ATTR { store_bytes(round(load(in + i, span), words + i), codes + i, span); });
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

// Magnitudes compare as integers, NaN above infinity.
HWY_INLINE IntVector magnitude(Vector v) {
  return hn::And(hn::BitCast(I32(), v), hn::Set(I32(), 0x7fffffff));
}
HWY_INLINE float greatest_lane(IntVector v) {
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(I32(), v)));
}

// Passes the rows of a tile, value(row, i) a vector of them, and finds the greatest magnitudes.
template <int64_t kWidth, bool kDown, typename Value>
HWY_INLINE void pass_rows(int64_t rows, const Greatest& greatest, const Value& value) {
  const int log_height = kDown ? std::countr_zero(static_cast<uint64_t>(greatest.height)) : 0;
  for (int64_t row = 0; row < rows; ++row) {
    float* const down = kDown ? greatest.down + (row >> log_height) * kTile : nullptr;
    const bool begins = (row & (greatest.height - 1)) == 0;
    for (int64_t begin = 0; begin < kTile; begin += kWidth) {
      IntVector most = hn::Zero(I32());
      for (int64_t i = begin; i < begin + kWidth; i += lanes()) {
        const IntVector size = magnitude(value(row, i));
        most = hn::Max(most, size);
        if constexpr (kDown) {
          const IntVector before = begins ? hn::Zero(I32()) : hn::BitCast(I32(), hn::LoadU(F32(), down + i));
          hn::StoreU(hn::BitCast(F32(), hn::Max(before, size)), F32(), down + i);
        }
      }
      if (greatest.across != nullptr)
        greatest.across[row * (kTile / kWidth) + begin / kWidth] = greatest_lane(most);
    }
  }
}
template <bool kDown, typename Value>
HWY_INLINE void pass_rows(int64_t rows, const Greatest& greatest, const Value& value) {
  if (greatest.width == 16) return pass_rows<16, kDown>(rows, greatest, value);
  if (greatest.width == 32) return pass_rows<32, kDown>(rows, greatest, value);
  pass_rows<kTile, kDown>(rows, greatest, value);
}
template <typename Value>
HWY_INLINE void pass_rows(int64_t rows, const Greatest& greatest, const Value& value) {
  if (greatest.down != nullptr) return pass_rows<true>(rows, greatest, value);
  pass_rows<false>(rows, greatest, value);
}

void FindGreatest(const Tile& tile, const Greatest& greatest) {
  pass_rows(tile.rows, greatest,
            [&](int64_t row, int64_t i) HWY_ATTR { return hn::Load(F32(), tile.values + row * kTile + i); });
}

// Rows between a load and the prefetch of a row: fp32 became 5 % faster on Zen 5 (2026-11-27).
inline constexpr int64_t kRowsAhead = 12;

template <typename T>
void load_tile(const T* data, int64_t stride, const Greatest& greatest, Tile* tile) {
  const int64_t rows = tile->rows, columns = tile->columns;
  std::fill(tile->values + rows * kTile, tile->values + filled(rows) * kTile, 0.0f);
  if (columns == kTile) {
    return pass_rows(rows, greatest, [&](int64_t row, int64_t i) HWY_ATTR {
      if (row + kRowsAhead < rows) __builtin_prefetch(data + (row + kRowsAhead) * stride + i);
      const Vector v = load(data + row * stride + i, Whole());
      hn::Store(v, F32(), tile->values + row * kTile + i);
      return v;
    });
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* const to = tile->values + row * kTile;
    const T* const from = data + row * stride;
    for_vectors(columns, [&](int64_t i, auto span) HWY_ATTR { store(to + i, load(from + i, span), span); });
    std::fill(to + columns, to + kTile, 0.0f);
  }
  FindGreatest(*tile, greatest);
}
void LoadTile(const void* data, DType dtype, int64_t stride, const Greatest& greatest, Tile* tile) {
  if (dtype == DType::kBF16) return load_tile(static_cast<const BF16*>(data), stride, greatest, tile);
  load_tile(static_cast<const float*>(data), stride, greatest, tile);
}

void HadamardDown(Tile* tile, HadamardSigns signs) {
  for (int64_t row = 0; row + kHadamard <= tile->rows; row += kHadamard) {
    for (int64_t column = 0; column < kTile; column += lanes()) {
      float* const at = tile->values + row * kTile + column;
      Vector x[kHadamard];
      for (int64_t i = 0; i < kHadamard; ++i) {
        x[i] = hn::Load(F32(), at + i * kTile);
        if ((signs.bits >> i & 1) != 0) x[i] = hn::Neg(x[i]);
      }
      for (int64_t apart = kHadamard / 2; apart > 0; apart /= 2) {
        for (int64_t i = 0; i < kHadamard; ++i) {
          if ((i & apart) != 0) continue;
          const Vector sum = hn::Add(x[i], x[i + apart]), difference = hn::Sub(x[i], x[i + apart]);
          x[i] = sum;
          x[i + apart] = difference;
        }
      }
      for (int64_t i = 0; i < kHadamard; ++i)
        hn::Store(hn::Mul(x[i], constant(0.25f)), F32(), at + i * kTile);
    }
  }
}

template <bool kDivide>
HWY_INLINE Vector scaled(Vector v, Vector factor) {
  if constexpr (kDivide) return hn::Div(v, factor);
  return hn::Mul(v, factor);
}

// Operands of the loops over a tile.
struct Work {
  const Tile& tile;
  const StochasticBits* stochastic;
  int log_height, log_width;
  const float* factors;
};

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
    if constexpr (Rounding::kRandom) words = words_of_row(work, row, columns, random);
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
        words[k] = words_of_row(work, row + k, columns, random + k * kRandomRow);
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

void EncodeTile(const Tile& tile, const Conversion& conversion, bool across, int64_t height, int64_t width,
                const float* factors, Output output) {
  const FormatSpec spec = spec_of(conversion.format);
  const bool pairs = conversion.format == Format::kE2M1;
  const Work work{tile, conversion.stochastic, std::countr_zero(static_cast<uint64_t>(height)),
                  std::countr_zero(static_cast<uint64_t>(width)), factors};
  if (conversion.stochastic != nullptr) {
    const Stochastic round(spec);
    if (conversion.divide) return encode_tile<true>(round, work, across, output, pairs);
    return encode_tile<false>(round, work, across, output, pairs);
  }
  if (conversion.in_range) {
    const Nearest<true> round(spec);
    if (conversion.divide) return encode_tile<true>(round, work, across, output, pairs);
    return encode_tile<false>(round, work, across, output, pairs);
  }
  const Nearest<false> round(spec);
  if (conversion.divide) return encode_tile<true>(round, work, across, output, pairs);
  encode_tile<false>(round, work, across, output, pairs);
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::quantize::tiles {

HWY_EXPORT(EncodeRun);
HWY_EXPORT(LoadTile);
HWY_EXPORT(FindGreatest);
HWY_EXPORT(HadamardDown);
HWY_EXPORT(EncodeTile);

void encode_run(Format format, const float* in, int64_t n, uint8_t* codes, const StochasticBits* stochastic,
                int64_t first) {
  HWY_DYNAMIC_DISPATCH(EncodeRun)(spec_of(format), in, n, codes, stochastic, first);
}
void load(const void* data, DType dtype, int64_t stride, const Greatest& greatest, Tile* tile) {
  HWY_DYNAMIC_DISPATCH(LoadTile)(data, dtype, stride, greatest, tile);
}
void hadamard_down(Tile* tile, HadamardSigns signs) {
  HWY_DYNAMIC_DISPATCH(HadamardDown)(tile, signs);
}
void find_greatest(const Tile& tile, const Greatest& greatest) {
  HWY_DYNAMIC_DISPATCH(FindGreatest)(tile, greatest);
}
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
