// Tiles of a causal convolution (causal_convolution_rows.h). Compiled once for every SIMD target: include it
// after <hwy/foreach_target.h>.
//
// Most rows are processed in groups of four, which share the rows that they read, in passes: the convolution,
// the function that follows, and its gradients. A pass has few instructions per vector, so that those of
// consecutive vectors overlap. Rows that read beyond the piece or beyond their document, and convolutions of
// other than three or four taps, are processed row by row. Both compute the same bits.
#if defined(STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_
#undef STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_
#else
#define STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/causal_convolution_steps-inl.h"

#ifndef STRATA_INLINED
#define STRATA_INLINED __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// Asks for rows of T that are used soon, because the hardware foresees only what follows in memory. Each pass
// through a group asks for the rows of a later pass, so that few requests wait at a time.
template <typename T>
HWY_INLINE void prefetch_rows(const T* p, int64_t channels) {
#pragma GCC unroll 8
  for (int r = 0; r < kGroup; ++r) hwy::Prefetch(p + r * channels);
}

// Calls run() with the number of taps as a constant, or 0 if it is neither three nor four.
template <typename Run>
void with_taps(int64_t taps, const Run& run) {
  if (taps == 4) {
    run(std::integral_constant<int, 4>());
  } else if (taps == 3) {
    run(std::integral_constant<int, 3>());
  } else {
    run(std::integral_constant<int, 0>());
  }
}

// Calls group(row) or single(row) for the rows [begin, end) of a piece. kTaps: 0 forbids groups.
template <int kTaps, typename T, typename Group, typename Single>
void for_rows(const PieceRows<T>& rows, int64_t begin, int64_t end, const Group& group,
              const Single& single) {
  for (int64_t row = begin; row < end;) {
    if (kTaps > 0 && row + kGroup <= end && rows.read_all_taps(row, row + kGroup)) {
      group(row);
      row += kGroup;
    } else {
      single(row);
      ++row;
    }
  }
}

// z[0] = the convolution at one row.
template <typename T>
void convolve_row(const ConvolutionCall& call, const RowsRead<T>& from, TileRows<kGroup>& z,
                  const ConvolutionTile& tile) {
  const int64_t taps = call.shape.taps, step = lanes();
  for_steps<T>(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    for_parts<T>([&](auto part) HWY_ATTR STRATA_INLINED {
      const int64_t offset = part() * step;
      const float* const weights = call.weights + call.floats_before(c + offset);
      Vector sum = load(weights + taps * step, Whole());
      for (int64_t j = 0; j < taps; ++j)
        sum = hn::MulAdd(load(weights + j * step, Whole()), load_part<part()>(from[j] + c, span), sum);
      store(z.rows[0] + i + offset, sum, Whole());
    });
  });
}

// z = the convolution at a group. x: the first row that it reads. soon: nullptr or rows as for prefetch_rows().
template <int kTaps, typename T>
void convolve_group(const ConvolutionCall& call, const T* x, TileRows<kGroup>& z, const T* soon,
                    const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels, step = lanes();
  for_steps<T>(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    for_parts<T>([&](auto part) HWY_ATTR STRATA_INLINED {
      const int64_t offset = part() * step;
      const float* const weights = call.weights + (c + offset) * (kTaps + 1);
      Vector sums[kGroup];
      const Vector bias = load(weights + kTaps * step, Whole());
#pragma GCC unroll 16
      for (int i_row = 0; i_row < kGroup + kTaps - 1; ++i_row) {
        const Vector value = load_part<part()>(x + i_row * channels + c, span);
#pragma GCC unroll 8
        for (int r = 0; r < kGroup; ++r) {
          const int j = i_row - r;
          if (j < 0 || j >= kTaps) continue;
          sums[r] = hn::MulAdd(load(weights + j * step, Whole()), value, j == 0 ? bias : sums[r]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kGroup; ++r) store(z.rows[r] + i + offset, sums[r], Whole());
    });
    if (soon != nullptr) prefetch_rows(soon + c, channels);
  });
}

// y of a few vectors of channels from the convolution.
template <bool kSilu, int kVectors, typename T, typename Span>
HWY_INLINE void finish_vectors(const float* z, T* y, Span span) {
  const int64_t step = lanes();
  Vector result[kVectors];
  STRATA_FOR_EACH_VECTOR result[v] = load(z + v * step, Whole());
  Follows<kSilu, T>::value(result);
  STRATA_FOR_EACH_VECTOR if (v % kParts<T> == 0) store_parts(y + v * step, result + v, span);
}
// y of consecutive rows from the convolution.
template <bool kSilu, typename T>
void finish_rows(const TileRows<kGroup>& z, int rows, T* y, const T* soon, int64_t channels,
                 const ConvolutionTile& tile) {
  for (int r = 0; r < rows; ++r) {
    for_vector_groups<T>(tile.width(), [&](int64_t i, auto vectors, auto span) HWY_ATTR STRATA_INLINED {
      finish_vectors<kSilu, vectors()>(z.rows[r] + i, y + r * channels + tile.channel_begin + i, span);
      hwy::Prefetch(soon + r * channels + tile.channel_begin + i);
    });
  }
}

// dz = the gradients of the convolution z, from those of y.
template <bool kSilu, int kVectors, typename T, typename Span>
HWY_INLINE void gradient_vectors(const float* z, const T* dy, float* dz, Span span) {
  const int64_t step = lanes();
  Vector gradient[kVectors];
  STRATA_FOR_EACH_VECTOR gradient[v] =
      v % kParts<T> == 0 ? load_part<0>(dy + v * step, span) : load_part<1>(dy + (v - 1) * step, span);
  if constexpr (kSilu) {
    Vector convolution[kVectors];
    STRATA_FOR_EACH_VECTOR convolution[v] = load(z + v * step, Whole());
    Follows<kSilu, T>::gradient(gradient, convolution);
  }
  STRATA_FOR_EACH_VECTOR store(dz + v * step, gradient[v], Whole());
}
template <bool kSilu, typename T>
void gradient_rows(const TileRows<kGroup>& z, int rows, const T* dy, float (*dz)[kTileChannels],
                   const T* soon, int64_t channels, const ConvolutionTile& tile) {
  for (int r = 0; r < rows; ++r) {
    for_vector_groups<T>(tile.width(), [&](int64_t i, auto vectors, auto span) HWY_ATTR STRATA_INLINED {
      const T* const at = dy + r * channels + tile.channel_begin + i;
      gradient_vectors<kSilu, vectors()>(z.rows[r] + i, at, dz[r] + i, span);
      hwy::Prefetch(soon + r * channels + tile.channel_begin + i);
    });
  }
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

// y, the first row of the piece, of the rows [begin, end).
template <bool kSilu, typename T>
void forward_rows(const ConvolutionCall& call, const PieceRows<T>& rows, int64_t begin, int64_t end, T* y,
                  const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels;
  TileRows<kGroup> z;
  with_taps(call.shape.taps, [&](auto taps) {
    for_rows<taps()>(
        rows, begin, end,
        [&](int64_t row) {
          if constexpr (taps() > 0)
            convolve_group<taps(), T>(call, rows.x + (row - taps() + 1) * channels, z, y + row * channels,
                                      tile);
          finish_rows<kSilu>(z, kGroup, y + row * channels, rows.x + (row + kGroup) * channels, channels,
                             tile);
        },
        [&](int64_t row) {
          RowsRead<T> from;
          rows.find(row, from);
          convolve_row<T>(call, from, z, tile);
          finish_rows<kSilu>(z, 1, y + row * channels, rows.x + (row + 1) * channels, channels, tile);
        });
  });
}

template <typename T, bool kSilu>
void forward_tile(const ConvolutionCall& call, void* y, const ConvolutionTile& tile) {
  for_pieces<T>(call, tile, [&](const PieceRows<T>& rows, int64_t first, int64_t begin, int64_t end) {
    forward_rows<kSilu, T>(call, rows, begin, end, static_cast<T*>(y) + first * call.shape.channels, tile);
  });
}

// dx of a row: Σ_d weight of tap taps - 1 - d · dz[d], that of the row d later.
template <typename T>
void input_row(const ConvolutionCall& call, const RowsRead<float>& dz, T* dx, const ConvolutionTile& tile) {
  const int64_t last = call.shape.taps - 1, step = lanes();
  for_steps<T>(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    Vector result[kParts<T>];
    for_parts<T>([&](auto part) HWY_ATTR STRATA_INLINED {
      const int64_t offset = part() * step;
      const float* const weights = call.unscaled + call.floats_before(c + offset);
      Vector sum = hn::Mul(load(weights + last * step, Whole()), load(dz[0] + i + offset, Whole()));
      for (int64_t d = 1; d <= last; ++d) {
        const Vector weight = load(weights + (last - d) * step, Whole());
        sum = hn::MulAdd(weight, load(dz[d] + i + offset, Whole()), sum);
      }
      result[part()] = sum;
    });
    store_parts(dx + c, result, span);
  });
}

// dx of a group. dz: of its first row and all later ones that are read; those after the group then move to the
// front, for the next one.
template <int kTaps, typename T>
void input_group(const ConvolutionCall& call, float (*dz)[kTileChannels], T* dx, const T* soon,
                 const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels, step = lanes();
  for_steps<T>(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    Vector result[kGroup][kParts<T>];
    for_parts<T>([&](auto part) HWY_ATTR STRATA_INLINED {
      const int64_t offset = part() * step, at = i + offset;
      const float* const weights = call.unscaled + (c + offset) * (kTaps + 1);
#pragma GCC unroll 16
      for (int later = 0; later < kGroup + kTaps - 1; ++later) {
        const Vector value = load(dz[later] + at, Whole());
        if (later >= kGroup) store(dz[later - kGroup] + at, value, Whole());
#pragma GCC unroll 8
        for (int r = 0; r < kGroup; ++r) {
          const int d = later - r;
          if (d < 0 || d >= kTaps) continue;
          const Vector weight = load(weights + (kTaps - 1 - d) * step, Whole());
          result[r][part()] = d == 0 ? hn::Mul(weight, value) : hn::MulAdd(weight, value, result[r][part()]);
        }
      }
    });
#pragma GCC unroll 8
    for (int r = 0; r < kGroup; ++r) store_parts(dx + r * channels + c, result[r], span);
    prefetch_rows(soon + c, channels);
  });
}

// A walk through a tile of one piece, whose rows are numbered from its first one.
template <typename T, bool kSilu>
class BackwardWalk {
 public:
  BackwardWalk(const ConvolutionCall& call, void* dx, void* dbefore, const void* dy,
               const ConvolutionTile& tile)
      : call_(call), tile_(tile), piece_(tile.begin / call.shape.piece), rows_(call, piece_) {
    const ConvolutionShape& s = call.shape;
    const int64_t first = piece_ * s.piece;
    begin_ = tile.begin - first;
    end_ = tile.end - first;
    needed_ = std::min(s.piece, end_ + s.taps - 1);
    dx_ = static_cast<T*>(dx) + first * s.channels;
    dy_ = static_cast<const T*>(dy) + first * s.channels;
    if (dbefore != nullptr) dbefore_ = static_cast<T*>(dbefore) + (piece_ + 1) * (s.taps - 1) * s.channels;
  }

  // The rows before the piece come with its first tile.
  void run() {
    known_ = begin_;
    for (int64_t row = begin_ == 0 && dbefore_ != nullptr ? 1 - call_.shape.taps : begin_; row < end_;) {
      bool grouped = false;
      with_taps(call_.shape.taps, [&](auto taps) {
        if constexpr (taps() > 0) grouped = run_group<taps()>(row);
      });
      if (!grouped) run_row(row);
      row += grouped ? kGroup : 1;
    }
  }

 private:
  // dx of a group from `row` on, unless a row that reads one of them does not read as far back as it could.
  template <int kTaps>
  bool run_group(int64_t row) {
    const int64_t next = row + kTaps - 1;  // whose dz comes next
    if (row < 0 || known_ != next || row + kGroup > end_ || next + kGroup > needed_ ||
        !rows_.read_all_taps(row + 1, next + kGroup))
      return false;
    const int64_t channels = call_.shape.channels;
    if constexpr (kSilu)
      convolve_group<kTaps, T>(call_, rows_.x + row * channels, z_, dx_ + row * channels, tile_);
    gradient_rows<kSilu>(z_, kGroup, dy_ + next * channels, dz_.rows + kTaps - 1,
                         rows_.x + (next + kGroup) * channels, channels, tile_);
    input_group<kTaps>(call_, dz_.rows, dx_ + row * channels, dy_ + (next + kGroup) * channels, tile_);
    known_ += kGroup;
    return true;
  }
  void run_row(int64_t row) {
    const int64_t taps = call_.shape.taps, channels = call_.shape.channels;
    for (; known_ < std::min(needed_, row + taps); ++known_) {
      RowsRead<T> from;
      rows_.find(known_, from);
      if constexpr (kSilu) convolve_row<T>(call_, from, z_, tile_);
      gradient_rows<kSilu>(z_, 1, dy_ + known_ * channels, dz_.rows + (known_ - row),
                           rows_.x + (known_ + 1) * channels, channels, tile_);
    }
    RowsRead<float> dz;
    for (int64_t d = 0; d < taps; ++d) {
      const int64_t reader = row + d;
      const bool reads = reader >= 0 && reader < call_.shape.piece && rows_.reach(reader) >= d;
      dz[d] = reads ? dz_.rows[d] : call_.zeros;
    }
    input_row<T>(call_, dz, (row < 0 ? dbefore_ : dx_) + row * channels, tile_);
    std::memmove(dz_.rows[0], dz_.rows[1], static_cast<size_t>(taps - 1) * sizeof dz_.rows[0]);
  }

  const ConvolutionCall& call_;
  const ConvolutionTile& tile_;
  int64_t piece_;
  PieceRows<T> rows_;
  int64_t begin_, end_, needed_;  // rows; dz of those before needed_ is read
  int64_t known_ = 0;             // the row after those whose dz is known
  T *dx_, *dbefore_ = nullptr;
  const T* dy_;
  TileRows<kGroup> z_;
  TileRows<kMostTaps - 1 + kGroup> dz_;  // from the next row to write on
};

template <typename T, bool kSilu>
void backward_tile(const ConvolutionCall& call, void* dx, void* dbefore, const void* dy,
                   const ConvolutionTile& tile) {
  BackwardWalk<T, kSilu>(call, dx, dbefore, dy, tile).run();
}

// Adds a row to sums, which are TapFloats.
template <typename T>
void weight_row(const ConvolutionCall& call, const RowsRead<T>& from, const float* dz, float* sums,
                const ConvolutionTile& tile) {
  const int64_t taps = call.shape.taps, step = lanes();
  for_steps<T>(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    for_parts<T>([&](auto part) HWY_ATTR STRATA_INLINED {
      const int64_t offset = part() * step;
      const Vector gradient = load(dz + i + offset, Whole());
      float* sum = sums + call.floats_before(c + offset);
      for (int64_t j = 0; j < taps; ++j, sum += step)
        store(sum, hn::MulAdd(gradient, load_part<part()>(from[j] + c, span), load(sum, Whole())), Whole());
      store(sum, hn::Add(load(sum, Whole()), gradient), Whole());
    });
  });
}

// Adds a group; x: the first row that it reads.
template <int kTaps, typename T>
void weight_group(const ConvolutionCall& call, const T* x, const float (*dz)[kTileChannels], float* sums,
                  const T* soon, const ConvolutionTile& tile) {
  const int64_t channels = call.shape.channels, step = lanes();
  for_steps<T>(tile.width(), [&](int64_t i, auto span) HWY_ATTR STRATA_INLINED {
    const int64_t c = tile.channel_begin + i;
    for_parts<T>([&](auto part) HWY_ATTR STRATA_INLINED {
      const int64_t offset = part() * step;
      float* const at = sums + (c + offset) * (kTaps + 1);
      Vector sum[kTaps + 1], gradient[kGroup];
#pragma GCC unroll 16
      for (int j = 0; j <= kTaps; ++j) sum[j] = load(at + j * step, Whole());
#pragma GCC unroll 16
      for (int row = 0; row < kGroup + kTaps - 1; ++row) {
        if (row < kGroup) {
          gradient[row] = load(dz[row] + i + offset, Whole());
          sum[kTaps] = hn::Add(sum[kTaps], gradient[row]);
        }
        const Vector value = load_part<part()>(x + row * channels + c, span);
        // Each sum adds its rows in order.
#pragma GCC unroll 8
        for (int j = 0; j < kTaps; ++j) {
          const int r = row - j;
          if (r >= 0 && r < kGroup) sum[j] = hn::MulAdd(gradient[r], value, sum[j]);
        }
      }
#pragma GCC unroll 16
      for (int j = 0; j <= kTaps; ++j) store(at + j * step, sum[j], Whole());
    });
    prefetch_rows(soon + c, channels);
  });
}

template <typename T, bool kSilu>
void weight_tile(const ConvolutionCall& call, float* sums, const void* dy, const ConvolutionTile& tile) {
  const ConvolutionShape& s = call.shape;
  const int64_t padded = (tile.channel_end + kChannelAlignment - 1) / kChannelAlignment * kChannelAlignment;
  std::fill(sums + call.floats_before(tile.channel_begin), sums + call.floats_before(padded), 0.0f);
  TileRows<kGroup> z, dz;
  for_pieces<T>(call, tile, [&](const PieceRows<T>& rows, int64_t first, int64_t begin, int64_t end) {
    const T* const gradients = static_cast<const T*>(dy) + first * s.channels;
    with_taps(s.taps, [&](auto taps) {
      for_rows<taps()>(
          rows, begin, end,
          [&](int64_t row) {
            const T* const x = rows.x + (row - taps() + 1) * s.channels;
            if constexpr (taps() > 0 && kSilu) convolve_group<taps(), T>(call, x, z, nullptr, tile);
            gradient_rows<kSilu>(z, kGroup, gradients + row * s.channels, dz.rows,
                                 rows.x + (row + kGroup) * s.channels, s.channels, tile);
            if constexpr (taps() > 0)
              weight_group<taps()>(call, x, dz.rows, sums, gradients + (row + kGroup) * s.channels, tile);
          },
          [&](int64_t row) {
            RowsRead<T> from;
            rows.find(row, from);
            if constexpr (kSilu) convolve_row<T>(call, from, z, tile);
            gradient_rows<kSilu>(z, 1, gradients + row * s.channels, dz.rows, rows.x + (row + 1) * s.channels,
                                 s.channels, tile);
            weight_row<T>(call, from, dz.rows[0], sums, tile);
          });
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
  forward_rows<kSilu, T>(call, rows, 0, count, to, tile);
  const auto bytes = static_cast<size_t>(tile.width()) * sizeof(T);
  for (int64_t row = std::max<int64_t>(count, 0); row < s.piece; ++row)
    std::memset(static_cast<void*>(to + row * s.channels + tile.channel_begin), 0, bytes);
  if (count <= 0) return;
  // What row `count` would read, from the oldest on: none is overwritten before it is read.
  RowsRead<T> last;
  rows.find(count, last);
  for (int64_t i = 0; i < kept; ++i)
    std::memmove(static_cast<void*>(entry + i * s.channels + tile.channel_begin),
                 last[i] + tile.channel_begin, bytes);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
