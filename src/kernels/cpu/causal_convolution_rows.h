// What a call of a causal convolution (causal_convolution.h) and its tasks work on: internal to it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/causal_convolution.h"

namespace strata::cpu {

// Part of a call: rows, by their numbers through all pieces, and channels.
struct ConvolutionTile {
  int64_t begin, end;                  // rows
  int64_t channel_begin, channel_end;  // at most kTileChannels
  int64_t width() const { return channel_end - channel_begin; }
};
// Rows of a tile's channels stay in the nearest caches while they are read again.
inline constexpr int64_t kTileChannels = 512, kTileRows = 64;
inline constexpr int kGroup = 4;                       // rows that are processed together
inline constexpr int64_t kChannelAlignment = 64;       // of rows of floats: whole steps on every target
inline constexpr float kBF16SiluScale = -1.44269504f;  // -1 / ln 2: SiLU then needs 2^x instead of exp(-x)

// Whether vectors of channels hold the even and the odd ones in turn.
constexpr bool by_parity(DType dtype, int64_t lanes) {
  return dtype == DType::kBF16 && lanes > 1;
}
// Layout of floats by channel and tap, with one more tap for the bias: the taps of a vector of channels are
// consecutive.
struct TapFloats {
  int64_t lanes;  // of a vector: a power of two
  bool parity;    // by_parity()
  int64_t taps;
  int64_t at(int64_t channel, int64_t tap) const {
    const int64_t in_step = channel & ((parity ? 2 * lanes : lanes) - 1);
    const int64_t vector = channel - in_step + (parity ? channel % 2 * lanes : 0);
    return vector * (taps + 1) + tap * lanes + (parity ? in_step / 2 : in_step);
  }
};

struct ConvolutionCall {
  ConvolutionShape shape;
  ConvolutionInputs in;
  const float* unscaled;  // weights as TapFloats
  const float* weights;   // weights and bias as TapFloats, times kBF16SiluScale if SiLU in bf16 follows
  const float* zeros;     // a row of x, and of a tile

  // Offset in TapFloats of the vector that begins at a channel.
  int64_t floats_before(int64_t channel) const { return channel * (shape.taps + 1); }
};
// A few rows of fp32 of a tile.
template <int kRows>
struct TileRows {
  alignas(64) float rows[kRows][kTileChannels];
};

// The rows that a row reads, oldest first.
template <typename T>
using RowsRead = const T* [kMostTaps];

// A piece of rows, numbered from its first one, and the rows before it.
template <typename T>
struct PieceRows {
  const T* x;                // its first row
  const T* before;           // the taps - 1 rows before it, or nullptr: zeros
  const T* zeros;            // a row of zeros
  const int32_t* positions;  // of its rows, or nullptr: row 0 has `position`, the others follow
  int64_t position = 0;
  int64_t taps, channels;

  PieceRows(const ConvolutionCall& call, const void* first, const void* rows_before)
      : x(static_cast<const T*>(first)),
        before(static_cast<const T*>(rows_before)),
        zeros(reinterpret_cast<const T*>(call.zeros)),
        positions(nullptr),
        taps(call.shape.taps),
        channels(call.shape.channels) {}
  PieceRows(const ConvolutionCall& call, int64_t piece)
      : PieceRows(call, static_cast<const T*>(call.in.x) + piece * call.shape.piece * call.shape.channels,
                  call.in.before) {
    if (before != nullptr) before += piece * (taps - 1) * channels;
    positions = call.in.positions + piece * call.shape.piece;
  }

  // How many rows before it the row may read.
  int64_t reach(int64_t row) const {
    return std::min<int64_t>(positions != nullptr ? positions[row] : position + row, taps - 1);
  }
  // Whether each of the rows [begin, end) reads one row of the piece per tap.
  bool read_all_taps(int64_t begin, int64_t end) const {
    if (begin < taps - 1) return false;
    for (int64_t row = begin; row < end; ++row)
      if (reach(row) < taps - 1) return false;
    return true;
  }
  // The rows that a row reads, none of another document.
  void find(int64_t row, RowsRead<T>& from) const {
    for (int64_t j = 0; j < taps; ++j) {
      const int64_t back = taps - 1 - j, at = row - back;
      from[j] = back > reach(row) || (at < 0 && before == nullptr) ? zeros
                : at < 0                                           ? before + (taps - 1 + at) * channels
                                                                   : x + at * channels;
    }
  }
};

}  // namespace strata::cpu
