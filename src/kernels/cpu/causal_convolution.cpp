#include "kernels/cpu/causal_convolution.h"

#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/causal_convolution_rows.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/causal_convolution.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// Rows that a loop reads some rounds later: too far from what it reads now for the hardware to foresee.
template <typename T>
HWY_INLINE void prefetch_row(const T* p) {
  hwy::Prefetch(p);
}

// z[r] = the convolution at rows whose taps read from[r].
template <int kRows, typename T, typename Span>
HWY_INLINE void convolve(const ConvolutionCall& call, const T* const (*from)[kMostTaps], int64_t c, Span span,
                         Vector (&z)[kRows]) {
  const ConvolutionShape& s = call.shape;
  const Vector bias = call.in.bias != nullptr ? load(call.in.bias + c, span) : zero();
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) z[r] = bias;
  for (int64_t j = 0; j < s.taps; ++j) {
    const Vector weight = load(call.weights + j * s.channels + c, span);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) z[r] = hn::MulAdd(weight, load(from[r][j] + c, span), z[r]);
  }
}

// y of rows that are consecutive in memory.
template <int kRows, bool kSilu, typename T>
void forward_rows(const ConvolutionCall& call, const T* const (*from)[kMostTaps], T* y,
                  const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels, ahead = kRows * channels;
  const T* const newest = from[0][call.shape.taps - 1];
  for_vectors(tile.channel_end - tile.channel_begin, [&](int64_t i, auto span) HWY_ATTR {
    const int64_t c = tile.channel_begin + i;
    Vector z[kRows];
    convolve<kRows>(call, from, c, span, z);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      prefetch_row(newest + ahead + r * channels + c);
      store(y + r * channels + c, kSilu ? Silu::value(z[r]) : z[r], span);
    }
  });
}

template <typename T, bool kSilu>
void forward_tile(const ConvolutionCall& call, void* y, const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  T* const to = static_cast<T*>(y);
  const T* from[4][kMostTaps];
  const auto find = [&](int64_t row, int r) {
    PieceRows<T>(call, row / s.piece).find(row % s.piece, call.in.positions[row], from[r]);
  };
  int64_t row = tile.begin;
  for (; row + 4 <= tile.end; row += 4) {
    for (int r = 0; r < 4; ++r) find(row + r, r);
    forward_rows<4, kSilu>(call, from, to + row * s.channels, tile);
  }
  for (; row < tile.end; ++row) {
    find(row, 0);
    forward_rows<1, kSilu>(call, from, to + row * s.channels, tile);
  }
}

// dz[r] of consecutive rows, the gradients of the convolution, from dy; rows of dz are kTileChannels.
template <int kRows, bool kSilu, typename T>
void convolution_gradients(const ConvolutionCall& call, const T* const (*from)[kMostTaps], const T* dy,
                           float* const* dz, const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels, ahead = kRows * channels;
  const T* const newest = from[0][call.shape.taps - 1];
  for_vectors(tile.channel_end - tile.channel_begin, [&](int64_t i, auto span) HWY_ATTR {
    const int64_t c = tile.channel_begin + i;
    Vector z[kRows];
    if constexpr (kSilu) convolve<kRows>(call, from, c, span, z);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kSilu) prefetch_row(newest + ahead + r * channels + c);
      prefetch_row(dy + ahead + r * channels + c);
      const Vector gradient = load(dy + r * channels + c, span);
      store(dz[r] + i, kSilu ? hn::Mul(gradient, Silu::both(z[r]).slope) : gradient, span);
    }
  });
}
// Of the rows [begin, end) of a piece; `dz_of(row)`: where to. from[row - begin]: what their taps read.
template <typename T, bool kSilu, typename Place>
void gradients_of_rows(const ConvolutionCall& call, const PieceRows<T>& rows, int64_t first, const T* dy,
                       const ConvolutionTile& tile, int64_t begin, int64_t end, const Place& dz_of) {
  const int64_t channels = call.shape.channels;
  const T* from[4][kMostTaps];
  float* dz[4];
  const auto find = [&](int64_t row, int r) {
    rows.find(row, call.in.positions[first + row], from[r]);
    dz[r] = dz_of(row);
  };
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) {
    for (int r = 0; r < 4; ++r) find(row + r, r);
    convolution_gradients<4, kSilu>(call, from, dy + (first + row) * channels, dz, tile);
  }
  for (; row < end; ++row) {
    find(row, 0);
    convolution_gradients<1, kSilu>(call, from, dy + (first + row) * channels, dz, tile);
  }
}

// dx of kRows consecutive rows: of row r the sum over d of the weight of tap taps - 1 - d with dz[r][d].
template <int kRows, typename T>
void input_gradients(const ConvolutionCall& call, const float* const (*dz)[kMostTaps], T* dx,
                     const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  for_vectors(tile.channel_end - tile.channel_begin, [&](int64_t i, auto span) HWY_ATTR {
    const int64_t c = tile.channel_begin + i;
    Vector sum[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r] = zero();
    for (int64_t d = 0; d < s.taps; ++d) {
      const Vector weight = load(call.weights + (s.taps - 1 - d) * s.channels + c, span);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] = hn::MulAdd(weight, load(dz[r][d] + i, span), sum[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) store(dx + r * s.channels + c, sum[r], span);
  });
}

template <typename T, bool kSilu>
void backward_tile(const ConvolutionCall& call, void* dx, void* dbefore, const void* dy,
                   const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  const int64_t piece = tile.begin / s.piece, first = piece * s.piece;
  const int64_t begin = tile.begin - first, end = tile.end - first;  // in the piece
  const PieceRows<T> rows(call, piece);
  // The gradients of the rows that a group's gradients need, each in its place modulo kKept.
  constexpr int64_t kKept = kGroup + kMostTaps - 1;
  HWY_ALIGN float kept[kKept * kTileChannels];
  const auto dz_of = [&](int64_t row) { return kept + row % kKept * kTileChannels; };
  // dz[r][d] of dx at a row, which may be one before the piece.
  const float* dz[4][kMostTaps];
  const auto find = [&](int64_t row, int r) {
    for (int64_t d = 0; d < s.taps; ++d) {
      const int64_t reader = row + d;
      const bool reads = reader >= 0 && reader < s.piece && call.in.positions[first + reader] >= d;
      dz[r][d] = reads ? dz_of(reader) : call.zeros;
    }
  };
  int64_t known = begin;  // the row after those whose gradients are kept
  for (int64_t group = begin; group < end; group += kGroup) {
    const int64_t last = std::min(end, group + kGroup), needed = std::min(s.piece, last + s.taps - 1);
    gradients_of_rows<T, kSilu>(call, rows, first, static_cast<const T*>(dy), tile, known, needed, dz_of);
    known = needed;
    if (group == 0 && dbefore != nullptr) {
      T* const to = static_cast<T*>(dbefore) + piece * (s.taps - 1) * s.channels;
      for (int64_t row = 1 - s.taps; row < 0; ++row) {
        find(row, 0);
        input_gradients<1>(call, dz, to + (row + s.taps - 1) * s.channels, tile);
      }
    }
    int64_t row = group;
    for (; row + 4 <= last; row += 4) {
      for (int r = 0; r < 4; ++r) find(row + r, r);
      input_gradients<4>(call, dz, static_cast<T*>(dx) + (first + row) * s.channels, tile);
    }
    for (; row < last; ++row) {
      find(row, 0);
      input_gradients<1>(call, dz, static_cast<T*>(dx) + (first + row) * s.channels, tile);
    }
  }
}

// sums[j][c] += Σ_r dz[r][c] · from[r][first + j][c] for kTaps taps.
template <int kTaps, typename T>
void add_weight_gradients(const ConvolutionCall& call, const T* const (*from)[kMostTaps], int64_t first,
                          const float* dz, int64_t rows, float* sums, const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels;
  for_vectors(tile.channel_end - tile.channel_begin, [&](int64_t i, auto span) HWY_ATTR {
    const int64_t c = tile.channel_begin + i;
    Vector sum[kTaps];
#pragma GCC unroll 4
    for (int j = 0; j < kTaps; ++j) sum[j] = load(sums + (first + j) * channels + c, span);
    for (int64_t r = 0; r < rows; ++r) {
      const Vector gradient = load(dz + r * kTileChannels + i, span);
#pragma GCC unroll 4
      for (int j = 0; j < kTaps; ++j)
        sum[j] = hn::MulAdd(gradient, load(from[r][first + j] + c, span), sum[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < kTaps; ++j) store(sums + (first + j) * channels + c, sum[j], span);
  });
}

// Sums over the rows of a tile, [taps + 1, channels], the last of the bias.
template <typename T, bool kSilu>
void weight_tile(const ConvolutionCall& call, float* sums, const void* dy, const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  const int64_t width = tile.channel_end - tile.channel_begin;
  for (int64_t j = 0; j <= s.taps; ++j) std::fill_n(sums + j * s.channels + tile.channel_begin, width, 0.0f);
  HWY_ALIGN float dz[kGroup * kTileChannels];
  const T* from[kGroup][kMostTaps];
  for (int64_t row = tile.begin; row < tile.end;) {
    const int64_t piece = row / s.piece, first = piece * s.piece;
    const int64_t end = std::min({tile.end, first + s.piece, row + kGroup});
    const PieceRows<T> rows(call, piece);
    gradients_of_rows<T, kSilu>(call, rows, first, static_cast<const T*>(dy), tile, row - first, end - first,
                                [&](int64_t at) { return dz + (first + at - row) * kTileChannels; });
    for (int64_t r = row; r < end; ++r) rows.find(r - first, call.in.positions[r], from[r - row]);
    int64_t j = 0;
    for (; j + 4 <= s.taps; j += 4) add_weight_gradients<4>(call, from, j, dz, end - row, sums, tile);
    for (; j < s.taps; ++j) add_weight_gradients<1>(call, from, j, dz, end - row, sums, tile);
    float* const bias = sums + s.taps * s.channels + tile.channel_begin;
    for_vectors(width, [&](int64_t i, auto span) HWY_ATTR {
      Vector sum = load(bias + i, span);
      for (int64_t r = 0; r < end - row; ++r) sum = hn::Add(sum, load(dz + r * kTileChannels + i, span));
      store(bias + i, sum, span);
    });
    row = end;
  }
}

// The channels of a tile of one sequence, tile.begin, and of its entry of the cache.
template <typename T, bool kSilu>
void cached_tile(const ConvolutionCall& call, void* y, void* cache, const CachedSequences& sequences,
                 const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  const int64_t sequence = tile.begin, kept = s.taps - 1;
  const int64_t position = sequences.position[sequence];
  const int64_t count = std::min<int64_t>(sequences.count[sequence], s.piece);
  const T* const x = static_cast<const T*>(call.in.x) + sequence * s.piece * s.channels;
  T* const entry = static_cast<T*>(cache) + sequences.slot[sequence] * kept * s.channels;
  T* const to = static_cast<T*>(y) + sequence * s.piece * s.channels;
  const PieceRows<T> rows(call, x, entry);
  const T* from[1][kMostTaps];
  for (int64_t row = 0; row < count; ++row) {
    rows.find(row, position + row, from[0]);
    forward_rows<1, kSilu>(call, from, to + row * s.channels, tile);
  }
  const auto bytes = static_cast<size_t>(tile.channel_end - tile.channel_begin) * sizeof(T);
  for (int64_t row = count; row < s.piece; ++row)
    std::memset(static_cast<void*>(to + row * s.channels + tile.channel_begin), 0, bytes);
  if (count <= 0) return;
  // Row `count` reads the last inputs: from the oldest on, none is overwritten before it is read.
  const T* last[kMostTaps];
  rows.find(count, position + count, last);
  for (int64_t i = 0; i < kept; ++i)
    std::memmove(static_cast<void*>(entry + i * s.channels + tile.channel_begin),
                 last[i] + tile.channel_begin, bytes);
}

void ForwardTile(const ConvolutionCall& call, void* y, const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run =
      call.shape.silu
          ? by_dtype(dtype, forward_tile<float, true>, forward_tile<BF16, true>, forward_tile<F16, true>)
          : by_dtype(dtype, forward_tile<float, false>, forward_tile<BF16, false>, forward_tile<F16, false>);
  run(call, y, tile);
}
void BackwardTile(const ConvolutionCall& call, void* dx, void* dbefore, const void* dy,
                  const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run = call.shape.silu ? by_dtype(dtype, backward_tile<float, true>, backward_tile<BF16, true>,
                                              backward_tile<F16, true>)
                                   : by_dtype(dtype, backward_tile<float, false>, backward_tile<BF16, false>,
                                              backward_tile<F16, false>);
  run(call, dx, dbefore, dy, tile);
}
void WeightTile(const ConvolutionCall& call, float* sums, const void* dy, const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run =
      call.shape.silu
          ? by_dtype(dtype, weight_tile<float, true>, weight_tile<BF16, true>, weight_tile<F16, true>)
          : by_dtype(dtype, weight_tile<float, false>, weight_tile<BF16, false>, weight_tile<F16, false>);
  run(call, sums, dy, tile);
}
void CachedTile(const ConvolutionCall& call, void* y, void* cache, const CachedSequences& sequences,
                const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run =
      call.shape.silu
          ? by_dtype(dtype, cached_tile<float, true>, cached_tile<BF16, true>, cached_tile<F16, true>)
          : by_dtype(dtype, cached_tile<float, false>, cached_tile<BF16, false>, cached_tile<F16, false>);
  run(call, y, cache, sequences, tile);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(ForwardTile);
HWY_EXPORT(BackwardTile);
HWY_EXPORT(WeightTile);
HWY_EXPORT(CachedTile);

namespace {

int64_t floats_of_call(const ConvolutionShape& s) {
  return (s.taps + 1) * s.channels + kTileChannels;
}

// Writes the transposed weights and a row of zeros, at least as wide as a tile, to the scratch.
ConvolutionCall prepare(const ConvolutionShape& s, const ConvolutionInputs& in, void* scratch,
                        const char* kernel) {
  require_activation_dtype(s.dtype, kernel);
  STRATA_CHECK(s.taps >= 1 && s.taps <= kMostTaps, "[causal_convolution] {} taps: expected 1 to {}", s.taps,
               kMostTaps);
  auto* const weights = static_cast<float*>(scratch);
  for (int64_t c = 0; c < s.channels; ++c)
    for (int64_t j = 0; j < s.taps; ++j) weights[j * s.channels + c] = in.weight[c * s.taps + j];
  float* const zeros = weights + s.taps * s.channels;
  std::fill_n(zeros, s.channels + kTileChannels, 0.0f);
  return {s, in, weights, zeros};
}

// Calls run(tile) for tiles of at most `rows` rows that together cover [0, all) and all channels. Tiles of the
// same rows are consecutive.
template <typename Run>
void for_tiles(int64_t all, int64_t rows, int64_t channels, const Run& run) {
  const int64_t across = (channels + kTileChannels - 1) / kTileChannels, down = (all + rows - 1) / rows;
  parallel_for(across * down, [&](int64_t i) {
    const int64_t row = i / across * rows, channel = i % across * kTileChannels;
    run(ConvolutionTile{row, std::min(all, row + rows), channel,
                        std::min(channels, channel + kTileChannels)});
  });
}

// Enough rows that partial sums are little to read, compared with them.
RowBlocks weight_blocks(int64_t rows) {
  const int64_t per_block = std::max<int64_t>(128, (rows + 255) / 256);
  return {per_block, (rows + per_block - 1) / per_block};
}

}  // namespace

int64_t convolution_scratch_bytes(const ConvolutionShape& s) {
  return floats_of_call(s) * int64_t{sizeof(float)};
}

void convolution_forward(const ConvolutionShape& s, void* y, const ConvolutionInputs& in, void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardTile);
  for_tiles(s.rows, kTileRows, s.channels, [&](const ConvolutionTile& tile) { kernel(call, y, tile); });
}

void convolution_backward_input(const ConvolutionShape& s, void* dx, void* dbefore, const void* dy,
                                const ConvolutionInputs& in, void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_backward_input");
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardTile);
  // Rows of a tile are of one piece.
  const int64_t blocks = (s.piece + kTileRows - 1) / kTileRows;
  for_tiles(s.rows / s.piece * blocks, 1, s.channels, [&](ConvolutionTile tile) {
    const int64_t first = tile.begin / blocks * s.piece, row = tile.begin % blocks * kTileRows;
    tile.begin = first + row;
    tile.end = first + std::min(s.piece, row + kTileRows);
    kernel(call, dx, dbefore, dy, tile);
  });
}

// Scratch: that of a call, a row of sums, and the partial rows; rows of sums are [taps + 1, channels].
int64_t convolution_weight_scratch_bytes(const ConvolutionShape& s) {
  return (floats_of_call(s) + (weight_blocks(s.rows).blocks + 1) * (s.taps + 1) * s.channels) *
         int64_t{sizeof(float)};
}

void convolution_backward_weight(const ConvolutionShape& s, float* dw, float* dbias, const void* dy,
                                 const ConvolutionInputs& in, bool accumulate_w, bool accumulate_bias,
                                 void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_backward_weight");
  const auto kernel = HWY_DYNAMIC_DISPATCH(WeightTile);
  const int64_t width = (s.taps + 1) * s.channels;
  float* const sums = static_cast<float*>(scratch) + floats_of_call(s);
  float* const partials = sums + width;
  const RowBlocks cut = weight_blocks(s.rows);
  for_tiles(s.rows, cut.rows_per_block, s.channels, [&](const ConvolutionTile& tile) {
    kernel(call, partials + tile.begin / cut.rows_per_block * width, dy, tile);
  });
  combine_partial_rows(sums, partials, cut.blocks, width, false);
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t j = 0; j < s.taps; ++j) {
      float& to = dw[c * s.taps + j];
      to = (accumulate_w ? to : 0.0f) + sums[j * s.channels + c];
    }
  }
  if (dbias == nullptr) return;
  for (int64_t c = 0; c < s.channels; ++c)
    dbias[c] = (accumulate_bias ? dbias[c] : 0.0f) + sums[s.taps * s.channels + c];
}

void convolution_cached(const ConvolutionShape& s, void* y, void* cache, const ConvolutionInputs& in,
                        const CachedSequences& sequences, void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_cached");
  const auto kernel = HWY_DYNAMIC_DISPATCH(CachedTile);
  for_tiles(s.rows / s.piece, 1, s.channels,
            [&](const ConvolutionTile& tile) { kernel(call, y, cache, sequences, tile); });
}

void take_piece_ends(int64_t pieces, int64_t piece_bytes, int64_t part_bytes, void* parts, const void* from) {
  parallel_for(pieces, [&](int64_t i) {
    std::memcpy(static_cast<std::byte*>(parts) + i * part_bytes,
                static_cast<const std::byte*>(from) + (i + 1) * piece_bytes - part_bytes,
                static_cast<size_t>(part_bytes));
  });
}

void put_piece_ends(int64_t pieces, int64_t piece_bytes, int64_t part_bytes, void* to, const void* parts) {
  const auto rest = static_cast<size_t>(piece_bytes - part_bytes);
  parallel_for(pieces, [&](int64_t i) {
    auto* const piece = static_cast<std::byte*>(to) + i * piece_bytes;
    std::memset(piece, 0, rest);
    std::memcpy(piece + rest, static_cast<const std::byte*>(parts) + i * part_bytes,
                static_cast<size_t>(part_bytes));
  });
}

void shift_pieces(int64_t sequences, int64_t pieces, int64_t piece_bytes, bool back, void* to,
                  const void* from) {
  const auto bytes = static_cast<size_t>(piece_bytes);
  parallel_for(sequences * pieces, [&](int64_t i) {
    const int64_t piece = i % pieces, source = back ? i + 1 : i - 1;
    auto* const out = static_cast<std::byte*>(to) + i * piece_bytes;
    if (piece == (back ? pieces - 1 : 0)) {
      std::memset(out, 0, bytes);
    } else {
      std::memcpy(out, static_cast<const std::byte*>(from) + source * piece_bytes, bytes);
    }
  });
}

}  // namespace strata::cpu
#endif
