// What a call of a causal convolution (causal_convolution.h) and its tasks work on: internal to it.
#pragma once

#include <cstdint>

#include "kernels/cpu/causal_convolution.h"

namespace strata::cpu {

// Part of a call: rows, by their numbers through all pieces, and channels.
struct ConvolutionTile {
  int64_t begin, end;                  // rows
  int64_t channel_begin, channel_end;  // at most kTileChannels
};
// Rows of a tile's channels stay in the first-level cache while they are read again.
inline constexpr int64_t kTileChannels = 512, kTileRows = 64;
inline constexpr int64_t kGroup = 8;  // rows whose gradients of the convolution are made at a time

struct ConvolutionCall {
  ConvolutionShape shape;
  ConvolutionInputs in;
  const float* weights;  // [taps, channels]
  const float* zeros;    // a row of x, and of a tile
};

// A piece of rows, numbered from its first one, and the rows before it.
template <typename T>
struct PieceRows {
  const T* x;       // its first row
  const T* before;  // the taps - 1 rows before it, or nullptr: zeros
  const T* zeros;   // a row of zeros
  int64_t taps, channels;

  PieceRows(const ConvolutionCall& call, const void* first, const void* rows_before)
      : x(static_cast<const T*>(first)),
        before(static_cast<const T*>(rows_before)),
        zeros(reinterpret_cast<const T*>(call.zeros)),
        taps(call.shape.taps),
        channels(call.shape.channels) {}
  PieceRows(const ConvolutionCall& call, int64_t piece)
      : PieceRows(call, static_cast<const T*>(call.in.x) + piece * call.shape.piece * call.shape.channels,
                  call.in.before) {
    if (before != nullptr) before += piece * (taps - 1) * channels;
  }

  // from[j]: the row that tap j reads at `row`, of whose document `position` rows precede it.
  void find(int64_t row, int64_t position, const T** from) const {
    for (int64_t j = 0; j < taps; ++j) {
      const int64_t back = taps - 1 - j, at = row - back;
      if (back > position || (at < 0 && before == nullptr)) {
        from[j] = zeros;
      } else {
        from[j] = at < 0 ? before + (taps - 1 + at) * channels : x + at * channels;
      }
    }
  }
};

}  // namespace strata::cpu
