// Tiles of a causal convolution (causal_convolution_rows.h). Compiled once for every SIMD target: include it
// after <hwy/foreach_target.h>.
#if defined(STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_
#undef STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_
#else
#define STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/activations-inl.h"
#include "kernels/cpu/causal_convolution_rows.h"

#ifndef STRATA_INLINED
#define STRATA_INLINED __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// body(i, Whole or Part) for consecutive vectors that cover [0, n), like for_vectors() but not unrolled: bodies
// of several rows have enough independent work, and must be inlined.
template <typename Body>
HWY_INLINE void for_large_vectors(int64_t n, const Body& body) {
  const int64_t step = lanes();
  int64_t i = 0;
  for (; i + step <= n; i += step) body(i, Whole());
  if (i < n) body(i, Part{static_cast<size_t>(n - i)});
}

// Asks for rows that the next group reads: the hardware foresees only what follows in memory.
template <typename T>
HWY_INLINE void prefetch_row(const T* p) {
  hwy::Prefetch(p);
}

// values[i] = rows[i] at c.
template <int kCount, typename T, typename Span>
HWY_INLINE void load_rows(const T* const (&rows)[kCount], int64_t c, Span span, Vector (&values)[kCount]) {
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) values[i] = load(rows[i] + c, span);
}

// sum[r] += Σ_j weight of tap j · values[r + j] for the taps [begin, end) of a block of four, whose weights
// are `step` apart.
template <int kRows, typename Span>
HWY_INLINE void add_taps(const float* weights, int64_t step, int64_t begin, int64_t end, Span span,
                         const Vector (&values)[kRows + kBlockTaps - 1], Vector (&sum)[kRows]) {
#pragma GCC unroll 4
  for (int j = 0; j < kBlockTaps; ++j) {
    if (j < begin || j >= end) continue;
    const Vector weight = load(weights + j * step, span);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r] = hn::MulAdd(weight, values[r + j], sum[r]);
  }
}

// z[r] = the convolution at kRows rows. `values`: on return those that the last block of taps reads.
template <int kRows, typename T, typename Span>
HWY_INLINE void convolve(const ConvolutionCall& call, const RowsRead<T, kRows>& from, int64_t c, Span span,
                         Vector (&values)[kRows + kBlockTaps - 1], Vector (&z)[kRows]) {
  const int64_t channels = call.shape.channels;
  const Vector bias = call.in.bias != nullptr ? load(call.in.bias + c, span) : zero();
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) z[r] = bias;
  int64_t missing = call.missing_taps();
  const float* weights = call.weights + c - missing * channels;
  int64_t b = 0;
  do {
    load_rows(from[b], c, span, values);
    add_taps<kRows>(weights, channels, missing, kBlockTaps, span, values, z);
    weights += kBlockTaps * channels;
    missing = 0;
  } while (++b < call.blocks);
}

// Calls run(std::integral_constant of 4 or 1, row) for the rows [begin, end) of a piece, four at a time unless
// they are cut.
template <typename T, typename Run>
void in_fours(const PieceRows<T>& rows, int64_t begin, int64_t end, const Run& run) {
  for (int64_t row = begin; row < end;) {
    if (row + 4 <= end && !rows.template is_cut<4>(row)) {
      run(std::integral_constant<int, 4>(), row);
      row += 4;
    } else {
      run(std::integral_constant<int, 1>(), row);
      ++row;
    }
  }
}

// y of kRows consecutive rows.
template <int kRows, bool kSilu, typename T>
void forward_rows(const ConvolutionCall& call, const RowsRead<T, kRows>& from, T* y,
                  const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels;
  const T* const next = from[call.blocks - 1][kBlockTaps - 1] + kRows * channels;
  for_large_vectors(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    Vector values[kRows + kBlockTaps - 1], z[kRows];
    convolve<kRows>(call, from, c, span, values, z);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      prefetch_row(next + r * channels + c);
      store(y + r * channels + c, kSilu ? Silu::value(z[r]) : z[r], span);
    }
  });
}

// Rows of a tile by the rows of their pieces: run(rows of the piece, its first row, begin, end).
template <typename T, typename Run>
void for_pieces(const ConvolutionCall& call, const ConvolutionTile& tile, const Run& run) {
  for (int64_t row = tile.begin; row < tile.end;) {
    const int64_t piece = row / call.shape.piece, first = piece * call.shape.piece;
    const int64_t end = std::min(tile.end, first + call.shape.piece);
    run(PieceRows<T>(call, piece), first, row - first, end - first);
    row = end;
  }
}

template <typename T, bool kSilu>
void forward_tile(const ConvolutionCall& call, void* y, const ConvolutionTile& tile) {
  for_pieces<T>(call, tile, [&](const PieceRows<T>& rows, int64_t first, int64_t begin, int64_t end) {
    in_fours(rows, begin, end, [&](auto count, int64_t row) {
      RowsRead<T, count()> from;
      rows.template find<count()>(row, from);
      forward_rows<count(), kSilu, T>(call, from, static_cast<T*>(y) + (first + row) * call.shape.channels,
                                      tile);
    });
  });
}

// The gradient of the convolution from those of y and its value.
template <bool kSilu>
HWY_INLINE Vector convolution_gradient(Vector dy, Vector z) {
  return kSilu ? hn::Mul(dy, Silu::both(z).slope) : dy;
}

// dz[r], the gradients of the convolution at kRows consecutive rows, from dy; rows of dz are kTileChannels.
template <int kRows, bool kSilu, typename T>
void gradient_rows(const ConvolutionCall& call, const RowsRead<T, kRows>& from, const T* dy, float* const* dz,
                   const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels;
  const T* const next = from[call.blocks - 1][kBlockTaps - 1] + kRows * channels;
  for_large_vectors(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    Vector values[kRows + kBlockTaps - 1], z[kRows] = {};
    if constexpr (kSilu) convolve<kRows>(call, from, c, span, values, z);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kSilu) prefetch_row(next + r * channels + c);
      prefetch_row(dy + (kRows + r) * channels + c);
      store(dz[r] + i, convolution_gradient<kSilu>(load(dy + r * channels + c, span), z[r]), span);
    }
  });
}

// dx of kRows consecutive rows: Σ_d weight of tap taps - 1 - d · dz of the row d later, which is at
// [d / 4][r + d % 4].
template <int kRows, typename T>
void input_rows(const ConvolutionCall& call, const RowsRead<float, kRows>& dz, T* dx,
                const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  for_large_vectors(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    Vector values[kRows + kBlockTaps - 1], sum[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r] = zero();
    for (int64_t b = 0; b < call.blocks; ++b) {
      load_rows(dz[b], i, span, values);
      const int64_t later = b * kBlockTaps;
      add_taps<kRows>(call.weights + (s.taps - 1 - later) * s.channels + c, -s.channels, 0, s.taps - later,
                      span, values, sum);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) store(dx + r * s.channels + c, sum[r], span);
  });
}

// The gradients dz of a tile's rows that are needed next: each in its place modulo kKept.
struct KeptGradients {
  static constexpr int64_t kKept = kGroup + kMostTaps - 1;
  HWY_ALIGN float rows[kKept * kTileChannels];
  float* at(int64_t row) { return rows + row % kKept * kTileChannels; }
};

// The dz that dx at kRows rows reads; `row` may precede the piece. True if no document begins among the readers:
// then all rows share these.
template <int kRows, typename T>
bool find_gradients(const ConvolutionCall& call, const PieceRows<T>& rows, KeptGradients& kept, int64_t row,
                    RowsRead<float, kRows>& dz) {
  bool all = true;
  for (int64_t b = 0; b < call.blocks; ++b) {
    for (int64_t i = 0; i < kRows + kBlockTaps - 1; ++i) {
      const int64_t later = b * kBlockTaps + i, reader = row + later;
      const bool inside = reader >= 0 && reader < call.shape.piece && later < call.shape.taps - 1 + kRows;
      // The first of the rows is the farthest.
      const bool reads = inside && rows.reach(reader) >= std::min<int64_t>(later, call.shape.taps - 1);
      if (inside && !reads && later > 0) all = false;
      dz[b][i] = reads ? kept.at(reader) : call.zeros;
    }
  }
  return all;
}

template <typename T, bool kSilu>
void backward_tile(const ConvolutionCall& call, void* dx, void* dbefore, const void* dy,
                   const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  const int64_t piece = tile.begin / s.piece, first = piece * s.piece;
  const int64_t begin = tile.begin - first, end = tile.end - first;  // in the piece
  const PieceRows<T> rows(call, piece);
  const T* const gradients = static_cast<const T*>(dy) + first * s.channels;
  KeptGradients kept;
  int64_t known = begin;  // the row after those whose gradients are kept
  const auto write = [&](T* to, int64_t row, auto count) {
    RowsRead<float, count()> dz;
    if (!find_gradients<count()>(call, rows, kept, row, dz) && count() > 1) return false;
    input_rows<count()>(call, dz, to, tile);
    return true;
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, 4> kFour;
  for (int64_t group = begin; group < end; group += kGroup) {
    const int64_t last = std::min(end, group + kGroup), needed = std::min(s.piece, last + s.taps - 1);
    in_fours(rows, known, needed, [&](auto count, int64_t row) {
      RowsRead<T, count()> from;
      rows.template find<count()>(row, from);
      float* dz[count()];
      for (int r = 0; r < count(); ++r) dz[r] = kept.at(row + r);
      gradient_rows<count(), kSilu, T>(call, from, gradients + row * s.channels, dz, tile);
    });
    known = needed;
    if (group == 0 && dbefore != nullptr) {
      T* const to = static_cast<T*>(dbefore) + (piece + 1) * (s.taps - 1) * s.channels;
      for (int64_t row = 1 - s.taps; row < 0; ++row) write(to + row * s.channels, row, kOne);
    }
    T* const to = static_cast<T*>(dx) + first * s.channels;
    for (int64_t row = group; row < last;) {
      const bool four = row + 4 <= last && write(to + row * s.channels, row, kFour);
      if (!four) write(to + row * s.channels, row, kOne);
      row += four ? 4 : 1;
    }
  }
}

// sums[j] += Σ_r dz[r] · values[r + j] for the taps [begin, 4) of a block; sums are `step` apart.
template <int kRows, typename Span>
HWY_INLINE void add_weight_gradients(float* sums, int64_t step, int64_t begin, Span span,
                                     const Vector (&values)[kRows + kBlockTaps - 1],
                                     const Vector (&dz)[kRows]) {
#pragma GCC unroll 4
  for (int j = 0; j < kBlockTaps; ++j) {
    if (j < begin) continue;
    Vector sum = load(sums + j * step, span);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum = hn::MulAdd(dz[r], values[r + j], sum);
    store(sums + j * step, sum, span);
  }
}

// Adds kRows consecutive rows to sums[taps + 1, channels], the last of the bias.
template <int kRows, bool kSilu, typename T>
void weight_rows(const ConvolutionCall& call, const RowsRead<T, kRows>& from, const T* dy, float* sums,
                 const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  const T* const next = from[call.blocks - 1][kBlockTaps - 1] + kRows * s.channels;
  const int64_t last = call.blocks - 1;
  for_large_vectors(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    Vector values[kRows + kBlockTaps - 1], z[kRows] = {};
    if constexpr (kSilu) {
      convolve<kRows>(call, from, c, span, values, z);
    } else {
      load_rows(from[last], c, span, values);
    }
    Vector bias = load(sums + s.taps * s.channels + c, span);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      prefetch_row(next + r * s.channels + c);
      prefetch_row(dy + (kRows + r) * s.channels + c);
      z[r] = convolution_gradient<kSilu>(load(dy + r * s.channels + c, span), z[r]);
      bias = hn::Add(bias, z[r]);
    }
    store(sums + s.taps * s.channels + c, bias, span);
    const int64_t missing = call.missing_taps();
    float* const first = sums + c - missing * s.channels;
    add_weight_gradients<kRows>(first + last * kBlockTaps * s.channels, s.channels, last == 0 ? missing : 0,
                                span, values, z);
    for (int64_t b = 0; b < last; ++b) {
      load_rows(from[b], c, span, values);
      add_weight_gradients<kRows>(first + b * kBlockTaps * s.channels, s.channels, b == 0 ? missing : 0, span,
                                  values, z);
    }
  });
}

template <typename T, bool kSilu>
void weight_tile(const ConvolutionCall& call, float* sums, const void* dy, const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  for (int64_t j = 0; j <= s.taps; ++j)
    std::fill_n(sums + j * s.channels + tile.channel_begin, tile.width(), 0.0f);
  for_pieces<T>(call, tile, [&](const PieceRows<T>& rows, int64_t first, int64_t begin, int64_t end) {
    in_fours(rows, begin, end, [&](auto count, int64_t row) {
      RowsRead<T, count()> from;
      rows.template find<count()>(row, from);
      weight_rows<count(), kSilu, T>(call, from, static_cast<const T*>(dy) + (first + row) * s.channels, sums,
                                     tile);
    });
  });
}

// The channels of a tile of one sequence, tile.begin, and of its entry of the cache.
template <typename T, bool kSilu>
void cached_tile(const ConvolutionCall& call, void* y, void* cache, const CachedSequences& sequences,
                 const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  const int64_t sequence = tile.begin, kept = s.taps - 1;
  const int64_t count = std::min<int64_t>(sequences.count[sequence], s.piece);
  const int64_t first = sequence * s.piece * s.channels;
  T* const entry = static_cast<T*>(cache) + sequences.slot[sequence] * kept * s.channels;
  T* const to = static_cast<T*>(y) + first;
  PieceRows<T> rows(call, static_cast<const T*>(call.in.x) + first, entry);
  rows.position = sequences.position[sequence];
  in_fours(rows, 0, count, [&](auto width, int64_t row) {
    RowsRead<T, width()> from;
    rows.template find<width()>(row, from);
    forward_rows<width(), kSilu, T>(call, from, to + row * s.channels, tile);
  });
  const auto bytes = static_cast<size_t>(tile.width()) * sizeof(T);
  for (int64_t row = std::max<int64_t>(count, 0); row < s.piece; ++row)
    std::memset(static_cast<void*>(to + row * s.channels + tile.channel_begin), 0, bytes);
  if (count <= 0) return;
  // What row `count` would read, from the oldest on: none is overwritten before it is read.
  RowsRead<T, 1> last;
  rows.template find<1>(count, last);
  const int64_t missing = call.missing_taps();
  for (int64_t i = 0; i < kept; ++i) {
    const T* const from = last[(missing + i) / kBlockTaps][(missing + i) % kBlockTaps];
    std::memmove(static_cast<void*>(entry + i * s.channels + tile.channel_begin), from + tile.channel_begin,
                 bytes);
  }
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
