// The vector loops of the conversions and of quantizing, for every instruction set. Internal to quantize.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/formats.h"
#include "quantize/hadamard.h"
#include "tensor/dtype.h"

namespace strata::quantize::tiles {

// encode() of formats.h on in[0, n); `stochastic` may be nullptr.
void encode_run(Format format, const float* in, int64_t n, uint8_t* codes, const StochasticBits* stochastic,
                int64_t first);

// The lower bytes of each format's subnormal numbers in bf16, at most eight, then the upper ones. As constants: a table that
// each call builds takes longer than it does to decode 128 codes.
inline constexpr auto kSubnormals = [] {
  std::array<std::array<uint8_t, 16>, kFormats> tables{};
  for (int f = 0; f < kFormats; ++f) {
    const FormatSpec spec = spec_of(static_cast<Format>(f));
    if (spec.mantissa_bits > 3) continue;
    for (uint32_t code = 1; code < 1u << spec.mantissa_bits; ++code) {
      const int exponent = static_cast<int>(std::bit_width(code)) - 1;
      const auto biased = static_cast<uint32_t>(127 + 1 - spec.bias - spec.mantissa_bits + exponent);
      const uint32_t bits = biased << 7 | ((code << (7 - exponent)) & 0x7fu);
      auto& table = tables[static_cast<size_t>(f)];
      table[code] = static_cast<uint8_t>(bits);
      table[code + 8] = static_cast<uint8_t>(bits >> 8);
    }
  }
  return tables;
}();

// decode() of formats.h with factors.
void decode_run(Format format, const uint8_t* codes, int64_t n, const BlockFactors& blocks, float* out);
void decode_run(Format format, const uint8_t* codes, int64_t n, const BlockFactors& blocks, BF16* out);

// A tile of the source: up to 128 x 128 values, filled up with zeros to multiples of 64 both ways.
inline constexpr int kLogTile = 7;
inline constexpr int64_t kTile = 1 << kLogTile;
inline constexpr int64_t kFill = 64;
constexpr int64_t filled(int64_t n) {
  return (n + kFill - 1) / kFill * kFill;
}
struct Tile {
  alignas(64) float values[kTile * kTile];  // rows of kTile
  int64_t rows = 0, columns = 0;            // in use
  int64_t element = 0, pitch = 0;  // first element's position in the whole tensor, and from row to row
  // Of the tile's first row, if rows are numbered by their places in the data (Source::places); `element` is then the
  // tile's first column.
  const int32_t* places = nullptr;
  std::span<const ColumnRun> runs =
      {};  // Source::runs; `element` then leaves the column out, which is `column`
  int64_t column = 0;
  // The source of the next tile, which rounding this one prefetches: rows begin in too many places for the processor to
  // guess them. It need not exist.
  const std::byte* next = nullptr;
  int64_t next_row_bytes = 0, next_stride_bytes = 0;
};

// Greatest magnitudes of parts of a tile, in which a NaN wins.
//   across[row * kTile / width + b]   of `width` (16, 32 or 128) values of a row
//   down[g * kTile + column]          of the rows [g height, (g + 1) height) of a column; `height` is a power of two
// All kTile columns are covered, and rows of the tile. nullptr: not wanted, and its extent is ignored.
struct Greatest {
  int64_t width;
  float* across;
  int64_t height;
  float* down;
};

// Loads tile.rows x tile.columns values, `stride` elements from row to row, and finds their greatest magnitudes.
void load(const void* data, DType dtype, int64_t stride, const Greatest& greatest, Tile* tile);
// Transforms every 16 whole columns of a tile: hadamard_16() of each row.
void hadamard_across(Tile* tile, HadamardSigns signs);
// Transforms every 16 whole rows of a tile: hadamard_16() of each column.
void hadamard_down(Tile* tile, HadamardSigns signs);
// The greatest magnitudes of a tile that changed after it was loaded.
void find_greatest(const Tile& tile, const Greatest& greatest);

// Knowledge of the scaled values of a tile: none, that no value is NaN, or also that no value rounds to more than the
// largest of the format.
enum class Range : uint8_t { kUnknown, kFinite, kFits };
// How values become codes: times `factors`, or divided by them, then rounded.
struct Conversion {
  Format format;
  bool divide;                       // blocks are then kTile columns wide
  const StochasticBits* stochastic;  // nullptr: to nearest
  Range range;
};
// Where codes go: rows of `pitch` bytes. e2m1 is packed, two a byte. `stream`: past the caches if whole lines allow it,
// which saves reading the lines that are overwritten; the caller flushes such stores. Rows [ask_begin, ask_end) of Tile::next are prefetched meanwhile.
struct Output {
  uint8_t* codes;
  int64_t pitch;
  bool stream;
  int64_t ask_begin, ask_end;
};
// Blocks of `height` rows and `width` columns, powers of two; factors[row / height * kTile / width + column / width].
void encode_across(const Tile& tile, const Conversion& conversion, int64_t height, int64_t width,
                   const float* factors, Output output);
// Writes the transposed codes. Blocks of `height` rows; factors[row / height * kTile + column].
void encode_down(const Tile& tile, const Conversion& conversion, int64_t height, const float* factors,
                 Output output);

}  // namespace strata::quantize::tiles
