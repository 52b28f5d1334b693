#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/causal_convolution/causal_convolution.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

// The inputs of one channel of a piece, or of a sequence with a cache: numbered from its first row, negative
// ones before it.
struct Channel {
  const Array& x;
  int64_t first;         // of its rows
  const Array& before;   // [..., w − 1, C], or absent
  int64_t before_first;  // of the rows that precede it
  int64_t c, taps;

  double at(int64_t row) const {
    const int64_t channels = x.shape[1];
    if (row >= 0) return x.at((first + row) * channels + c);
    return before.present() ? before.at((before_first + taps - 1 + row) * channels + c) : 0;
  }
  // The convolution at a row of which `position` tokens of its document precede.
  double convolve(const Array& weight, const Array& bias, int64_t row, int64_t position) const {
    double sum = bias.present() ? bias.at(c) : 0;
    for (int64_t d = 0; d < taps && d <= position; ++d)
      sum += weight.at(c * taps + taps - 1 - d) * at(row - d);
    return sum;
  }
};

double silu(double z) {
  return z / (1 + std::exp(-z));
}
double silu_slope(double z) {
  const double s = 1 / (1 + std::exp(-z));
  return s * (1 + z * (1 - s));
}

struct PieceSizes {
  int64_t rows, pieces, taps;

  template <typename Op>
  explicit PieceSizes(const Arrays<Op>& at)
      : rows(at.attrs.sequence_length / at.attrs.pieces),
        pieces(at.in.x.shape[0] / rows),
        taps(at.in.weight.shape[1]) {}
};

// Calls body(inputs, piece, c) for each channel of each piece.
template <typename Op, typename Body>
void for_channels(const Arrays<Op>& at, const Body& body) {
  const PieceSizes sizes(at);
  const int64_t channels = at.in.x.shape[1];
  parallel_for(channels, [&](int64_t c) {
    for (int64_t piece = 0; piece < sizes.pieces; ++piece)
      body(Channel{at.in.x, piece * sizes.rows, at.in.before, piece * (sizes.taps - 1), c, sizes.taps}, piece,
           sizes);
  });
}
// The gradient of the convolution at a row of a piece.
template <typename Op>
double convolution_gradient(const Arrays<Op>& at, const Channel& channel, int64_t row) {
  const int64_t n = channel.first + row;
  const double dy = at.in.dy.at(n * at.in.x.shape[1] + channel.c);
  if (!at.attrs.silu) return dy;
  return dy * silu_slope(channel.convolve(at.in.weight, at.in.bias, row, at.in.positions.index_at(n)));
}

}  // namespace

template <>
void compute(const Arrays<ops::CausalConvolution>& at) {
  for_channels(at, [&](const Channel& channel, int64_t, const PieceSizes& sizes) {
    for (int64_t row = 0; row < sizes.rows; ++row) {
      const int64_t n = channel.first + row;
      const double z = channel.convolve(at.in.weight, at.in.bias, row, at.in.positions.index_at(n));
      at.out.y.put(n * at.in.x.shape[1] + channel.c, at.attrs.silu ? silu(z) : z);
    }
  });
}

template <>
void compute(const Arrays<ops::CausalConvolutionGradInput>& at) {
  const int64_t channels = at.in.x.shape[1];
  for_channels(at, [&](const Channel& channel, int64_t, const PieceSizes& sizes) {
    const int64_t taps = sizes.taps;
    const int64_t from = at.in.before.present() ? 1 - taps : 0;
    for (int64_t row = from; row < sizes.rows; ++row) {
      double sum = 0;
      for (int64_t d = std::max<int64_t>(0, -row); d < taps && row + d < sizes.rows; ++d) {
        if (at.in.positions.index_at(channel.first + row + d) < d) continue;
        sum += at.in.weight.at(channel.c * taps + taps - 1 - d) * convolution_gradient(at, channel, row + d);
      }
      if (row >= 0) {
        at.out.dx.put((channel.first + row) * channels + channel.c, sum);
      } else {
        at.out.dbefore.put((channel.before_first + taps - 1 + row) * channels + channel.c, sum);
      }
    }
  });
}

template <>
void compute(const Arrays<ops::CausalConvolutionGradWeight>& at) {
  const int64_t taps = at.in.weight.shape[1], channels = at.in.x.shape[1];
  std::vector<double> weights(static_cast<size_t>(channels * taps)), biases(static_cast<size_t>(channels));
  for_channels(at, [&](const Channel& channel, int64_t, const PieceSizes& sizes) {
    for (int64_t row = 0; row < sizes.rows; ++row) {
      const double dz = convolution_gradient(at, channel, row);
      biases[static_cast<size_t>(channel.c)] += dz;
      const int64_t position = at.in.positions.index_at(channel.first + row);
      for (int64_t d = 0; d < taps && d <= position; ++d)
        weights[static_cast<size_t>(channel.c * taps + taps - 1 - d)] += dz * channel.at(row - d);
    }
  });
  for (size_t i = 0; i < weights.size(); ++i) at.out.dw.give(static_cast<int64_t>(i), weights[i]);
  if (!at.out.dbias.present()) return;
  for (size_t c = 0; c < biases.size(); ++c) at.out.dbias.give(static_cast<int64_t>(c), biases[c]);
}

namespace {

// Calls body(row of x, row of tails) for the last rows of every piece.
template <typename Body>
void for_tails(const ops::ConvolutionTailsAttrs& attrs, int64_t rows, const Body& body) {
  const int64_t length = attrs.sequence_length / attrs.pieces, tail = attrs.taps - 1;
  for (int64_t piece = 0; piece < rows / length; ++piece)
    for (int64_t i = 0; i < tail; ++i) body((piece + 1) * length - tail + i, piece * tail + i);
}

}  // namespace

template <>
void compute(const Arrays<ops::ConvolutionTails>& at) {
  const Array &x = at.in.x, &tails = at.out.tails;
  const int64_t channels = x.shape[1];
  for_tails(at.attrs, x.shape[0], [&](int64_t from, int64_t to) {
    for (int64_t c = 0; c < channels; ++c) tails.put(to * channels + c, x.at(from * channels + c));
  });
}

template <>
void compute(const Arrays<ops::ConvolutionTailsGrad>& at) {
  const Array &dx = at.out.dx, &dtails = at.in.dtails;
  const int64_t channels = dx.shape[1];
  for (int64_t i = 0; i < dx.shape.elements(); ++i) dx.put(i, 0);
  for_tails(at.attrs, dx.shape[0], [&](int64_t to, int64_t from) {
    for (int64_t c = 0; c < channels; ++c) dx.put(to * channels + c, dtails.at(from * channels + c));
  });
}

template <>
void compute(const Arrays<ops::ShiftPieces>& at) {
  const Array &x = at.in.x, &shifted = at.out.shifted;
  const int64_t piece = at.attrs.rows * x.shape[1], pieces = at.attrs.pieces;
  for (int64_t i = 0; i < x.shape.elements(); ++i) {
    const int64_t of = i / piece % pieces, from = at.attrs.back ? of + 1 : of - 1;
    shifted.put(i, from < 0 || from == pieces ? 0 : x.at(i + (from - of) * piece));
  }
}

template <>
void compute(const Arrays<ops::CachedConvolution>& at) {
  const Array &x = at.in.x, &cache = at.out.cache;
  const int64_t channels = x.shape[1], taps = at.in.weight.shape[1], tail = taps - 1;
  const int64_t sequences = at.in.position.shape[0], rows = x.shape[0] / sequences;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t position = at.in.position.index_at(s), count = at.in.count.index_at(s),
                  entry = at.in.slot.index_at(s) * tail;
    for (int64_t c = 0; c < channels; ++c) {
      const Channel channel{x, s * rows, cache, entry, c, taps};
      for (int64_t row = 0; row < rows; ++row) {
        const double z = channel.convolve(at.in.weight, at.in.bias, row, position + row);
        at.out.y.put((s * rows + row) * channels + c, row >= count ? 0 : at.attrs.silu ? silu(z) : z);
      }
      if (count == 0) continue;
      std::vector<double> kept;
      for (int64_t row = count - tail; row < count; ++row)
        kept.push_back(row + position < 0 ? 0 : channel.at(row));
      for (int64_t i = 0; i < tail; ++i) cache.put((entry + i) * channels + c, kept[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace strata::reference
