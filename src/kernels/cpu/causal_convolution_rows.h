// What a call of a causal convolution (causal_convolution.h) and its tasks work on: internal to it.
//
// Taps are processed four at a time. Their number is rounded up at the oldest end; a group of four rows and
// four taps reads seven rows.
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
inline constexpr int64_t kGroup = 8;  // rows whose gradients of the convolution are made at a time
inline constexpr int64_t kBlockTaps = 4, kMostBlocks = kMostTaps / kBlockTaps;

inline int64_t tap_blocks(int64_t taps) {
  return (taps + kBlockTaps - 1) / kBlockTaps;
}

struct ConvolutionCall {
  ConvolutionShape shape;
  ConvolutionInputs in;
  int64_t blocks;        // of taps
  const float* weights;  // [taps, channels]
  const float* zeros;    // a row of x, and of a tile

  int64_t missing_taps() const { return blocks * kBlockTaps - shape.taps; }  // of the first block
};

// The rows that kRows consecutive rows read: tap j of block b reads at row r the row at [b][r + j].
template <typename T, int kRows>
using RowsRead = const T* [kMostBlocks][kRows + kBlockTaps - 1];

// A piece of rows, numbered from its first one, and the rows before it.
template <typename T>
struct PieceRows {
  const T* x;                // its first row
  const T* before;           // the taps - 1 rows before it, or nullptr: zeros
  const T* zeros;            // a row of zeros
  const int32_t* positions;  // of its rows, or nullptr: row 0 has `position`, the others follow
  int64_t position = 0;
  int64_t taps, blocks, channels;

  PieceRows(const ConvolutionCall& call, const void* first, const void* rows_before)
      : x(static_cast<const T*>(first)),
        before(static_cast<const T*>(rows_before)),
        zeros(reinterpret_cast<const T*>(call.zeros)),
        positions(nullptr),
        taps(call.shape.taps),
        blocks(call.blocks),
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
  // Whether a document begins so late that the rows from `row` on do not share the rows that they read.
  template <int kRows>
  bool is_cut(int64_t row) const {
    for (int64_t r = row; r < row + kRows; ++r)
      if (reach(r) < (before != nullptr ? taps - 1 : std::min(taps - 1, r))) return true;
    return false;
  }
  // The rows that `kRows` rows from `row` on read: none of another document for one row; of several rows
  // is_cut() must be false.
  template <int kRows>
  void find(int64_t row, RowsRead<T, kRows>& from) const {
    const int64_t rounded = blocks * kBlockTaps;
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t i = 0; i < kRows + kBlockTaps - 1; ++i) {
        const int64_t back = rounded - 1 - b * kBlockTaps - i, at = row - back;
        const bool apart = back >= taps || (kRows == 1 && back > reach(row));
        from[b][i] = apart || (at < 0 && before == nullptr) ? zeros
                     : at < 0                               ? before + (taps - 1 + at) * channels
                                                            : x + at * channels;
      }
    }
  }
};

}  // namespace strata::cpu
