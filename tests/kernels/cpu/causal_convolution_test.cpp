#include "kernels/cpu/causal_convolution.h"

#include <limits>
#include <numeric>

#include "fixtures/every_target.h"
#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::scratch_of;

std::vector<std::byte> joined(std::initializer_list<const Array*> arrays) {
  std::vector<std::byte> all;
  for (const Array* one : arrays) all.insert(all.end(), one->bytes().begin(), one->bytes().end());
  return all;
}

// Positions of rows in documents of these lengths.
std::vector<int32_t> positions_of(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> positions;
  for (const int64_t length : lengths)
    for (int64_t i = 0; i < length; ++i) positions.push_back(static_cast<int32_t>(i));
  return positions;
}

// A convolution of random rows and its gradients.
struct Convolution {
  ConvolutionShape shape;
  bool biased, continues;  // continues: rows precede the pieces
  std::vector<int32_t> positions;
  Array x, dy, weight, bias, before;
  Array y, dx, dbefore, dw, dbias;

  Convolution(const ConvolutionShape& of, bool with_bias, bool with_before, std::vector<int32_t> of_rows)
      : shape(of),
        biased(with_bias),
        continues(with_before),
        positions(std::move(of_rows)),
        x(Array::random(of.dtype, of.rows * of.channels, 1)),
        dy(Array::random(of.dtype, of.rows * of.channels, 2)),
        weight(Array::random(DType::kF32, of.channels * of.taps, 3)),
        bias(Array::random(DType::kF32, of.channels, 4)),
        before(Array::random(of.dtype, rows_before() * of.channels, 5)),
        y(of.dtype, x.size()),
        dx(of.dtype, x.size()),
        dbefore(of.dtype, before.size()),
        dw(DType::kF32, weight.size()),
        dbias(DType::kF32, bias.size()) {}

  int64_t rows_before() const { return continues ? shape.rows / shape.piece * (shape.taps - 1) : 0; }
  ConvolutionInputs inputs() const {
    return {x.data(), weight.f32(), biased ? bias.f32() : nullptr, positions.data(),
            continues ? before.data() : nullptr};
  }
  void forward() {
    Array scratch = scratch_of(convolution_scratch_bytes(shape));
    convolution_forward(shape, y.data(), inputs(), scratch.data());
  }
  void backward() {
    Array scratch = scratch_of(convolution_scratch_bytes(shape));
    convolution_backward_input(shape, dx.data(), continues ? dbefore.data() : nullptr, dy.data(), inputs(),
                               scratch.data());
    weights(false);
  }
  void weights(bool accumulate) {
    Array scratch = scratch_of(convolution_weight_scratch_bytes(shape));
    convolution_backward_weight(shape, dw.f32(), biased ? dbias.f32() : nullptr, dy.data(), inputs(),
                                accumulate, accumulate, scratch.data());
  }
  std::vector<std::byte> bytes() const { return joined({&y, &dx, &dbefore, &dw, &dbias}); }

  // The formulas in double.
  void check() const {
    const int64_t channels = shape.channels, taps = shape.taps;
    std::vector<double> want(static_cast<size_t>(x.size())), want_dx(want.size()),
        want_before(static_cast<size_t>(before.size())), want_w(static_cast<size_t>(weight.size())),
        want_bias(static_cast<size_t>(channels));
    for (int64_t n = 0; n < shape.rows; ++n) {
      const int64_t at = n % shape.piece, piece = n / shape.piece;
      for (int64_t c = 0; c < channels; ++c) {
        // What tap taps - 1 - back reads: an element of x, or of `before`.
        const auto reads = [&](int64_t back, const auto& of_x, const auto& of_before) {
          if (back > positions[static_cast<size_t>(n)]) return;
          if (back <= at) return of_x((n - back) * channels + c);
          if (continues) of_before((piece * (taps - 1) + taps - 1 + at - back) * channels + c);
        };
        const auto weight_of = [&](int64_t back) { return c * taps + taps - 1 - back; };
        double z = biased ? bias[c] : 0;
        for (int64_t back = 0; back < taps; ++back)
          reads(
              back, [&](int64_t i) { z += weight[weight_of(back)] * x[i]; },
              [&](int64_t i) { z += weight[weight_of(back)] * before[i]; });
        const double s = 1 / (1 + std::exp(-z)), slope = shape.silu ? s * (1 + z * (1 - s)) : 1;
        const int64_t place = n * channels + c;
        want[static_cast<size_t>(place)] = shape.silu ? z * s : z;
        const double dz = dy[place] * slope;
        want_bias[static_cast<size_t>(c)] += dz;
        for (int64_t back = 0; back < taps; ++back) {
          const auto w = static_cast<size_t>(weight_of(back));
          reads(
              back,
              [&](int64_t i) {
                want_dx[static_cast<size_t>(i)] += dz * weight[weight_of(back)];
                want_w[w] += dz * x[i];
              },
              [&](int64_t i) {
                want_before[static_cast<size_t>(i)] += dz * weight[weight_of(back)];
                want_w[w] += dz * before[i];
              });
        }
      }
    }
    const double approximate = shape.silu && shape.dtype == DType::kBF16 ? 0x1p-13 : 0;
    expect_near(y, want, 4e-6 + approximate);
    expect_near(dx, want_dx, 8e-6 + 4 * approximate);
    expect_near(dbefore, want_before, 8e-6 + 4 * approximate);
    const double sums = std::sqrt(static_cast<double>(shape.rows)) + 1;
    expect_near(dw, want_w, 4e-6 + 2 * approximate, sums);
    if (biased) expect_near(dbias, want_bias, 4e-6 + 2 * approximate, sums);
  }
};

// Documents of 1 to 9 rows.
std::vector<int32_t> mixed_documents(int64_t rows) {
  std::vector<int64_t> lengths;
  for (int64_t rest = rows, i = 0; rest > 0; ++i) {
    lengths.push_back(std::min<int64_t>(rest, i * 5 % 9 + 1));
    rest -= lengths.back();
  }
  return positions_of(lengths);
}
// One document that began long before.
std::vector<int32_t> far_along(int64_t rows) {
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), 1000);
  return positions;
}

struct Sizes {
  int64_t pieces, piece, channels;
};
// T = 1, fewer rows than taps, and sizes around groups, blocks and tiles.
const std::vector<Sizes> kSizes = {{0, 5, 20}, {1, 1, 63},  {3, 1, 20},  {2, 2, 20},   {2, 3, 1},
                                   {1, 4, 33}, {3, 13, 20}, {2, 70, 20}, {1, 130, 17}, {1, 9, 600}};

TEST(CausalConvolution, MatchesDouble) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const Sizes& sizes : kSizes) {
      for (const int64_t taps : {1, 2, 3, 4, 7, 16}) {
        if (sizes.channels == 600 && taps != 4) continue;
        for (const bool silu : {false, true}) {
          const ConvolutionShape shape{.rows = sizes.pieces * sizes.piece,
                                       .piece = sizes.piece,
                                       .channels = sizes.channels,
                                       .taps = taps,
                                       .silu = silu,
                                       .dtype = dtype};
          SCOPED_TRACE(::testing::Message()
                       << name_of(dtype) << ", " << sizes.pieces << " pieces of " << sizes.piece << " x "
                       << sizes.channels << ", " << taps << " taps" << (silu ? ", SiLU" : ""));
          for (const bool continues : {false, true}) {
            Convolution one(shape, silu, continues,
                            continues ? far_along(shape.rows) : mixed_documents(shape.rows));
            one.forward();
            one.backward();
            one.check();
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(CausalConvolution, MatchesDoubleOnEveryTarget) {
  fixtures::on_every_target([](int64_t) {
    for (const DType dtype : testing::kActivationTypes) {
      for (const int64_t channels : {1, 15, 40, 130}) {
        for (const bool mixed : {true, false}) {
          Convolution one(
              {.rows = 22, .piece = 11, .channels = channels, .taps = 4, .silu = true, .dtype = dtype}, true,
              true, mixed ? mixed_documents(22) : far_along(22));
          one.forward();
          one.backward();
          one.check();
        }
      }
    }
  });
}

// SiLU of all bf16 values, and its slope, as the convolution with one tap of 1. Infinity and NaN: as in fp32, but
// values from 2^127.4 on become infinite.
TEST(CausalConvolution, SiluOfEveryBF16Value) {
  fixtures::on_every_target([](int64_t) {
    const auto of_all_values = [](DType dtype) {
      Convolution one({.rows = 128, .piece = 128, .channels = 512, .taps = 1, .silu = true, .dtype = dtype},
                      false, false, far_along(128));
      for (int64_t i = 0; i < one.x.size(); ++i) {
        BF16 value;
        value.bits = static_cast<uint16_t>(i);
        one.x.set(i, static_cast<float>(value));
        one.dy.set(i, 1);
      }
      for (int64_t i = 0; i < one.weight.size(); ++i) one.weight.set(i, 1);
      one.forward();
      one.backward();
      return one;
    };
    const Convolution bf16 = of_all_values(DType::kBF16), fp32 = of_all_values(DType::kF32);
    for (int64_t i = 0; i < bf16.x.size(); ++i) {
      const double x = bf16.x[i], s = 1 / (1 + std::exp(-x)), term = x * s * (1 - s);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(bf16.y[i])) << i;
        EXPECT_EQ(std::isnan(bf16.dx[i]), std::isnan(fp32.dx[i])) << i;
      } else if (std::isinf(x)) {
        EXPECT_EQ(bf16.y[i], fp32.y[i]) << x;
        EXPECT_NEAR(bf16.dx[i], fp32.dx[i], 1e-35) << x;
      } else {
        const double least = 1e-35 + std::abs(x) * 0x1p-125;  // the exponential ends at -87
        const double greater = std::max(s, std::abs(term));
        EXPECT_NEAR(bf16.dx[i], s + term, 0x1p-8 * std::abs(s + term) + 0x1p-13 * greater + 1e-35) << x;
        if (std::abs(x) > 2.3e38) continue;
        EXPECT_NEAR(bf16.y[i], x * s, (0x1p-8 + 0x1p-13) * std::abs(x * s) + least) << x;
      }
    }
  });
}

// NaN of weights that bf16 does not have is still NaN after rounding.
TEST(CausalConvolution, RoundsNaNToNaN) {
  fixtures::on_every_target([](int64_t) {
    for (const bool silu : {false, true}) {
      Convolution one({.rows = 8, .piece = 8, .channels = 33, .taps = 4, .silu = silu, .dtype = DType::kBF16},
                      true, false, far_along(8));
      const uint32_t all_bits = 0x7fffffff;
      std::memcpy(one.weight.f32() + 5 * 4, &all_bits, sizeof all_bits);
      std::memcpy(one.bias.f32() + 7, &all_bits, sizeof all_bits);
      one.forward();
      one.backward();
      for (int64_t i = 0; i < one.y.size(); ++i) {
        const int64_t channel = i % 33;
        EXPECT_EQ(std::isnan(one.y[i]), channel == 5 || channel == 7) << i;
        if (channel == 7) continue;  // the slope of NaN depends on the instruction set
        EXPECT_EQ(std::isnan(one.dx[i]), channel == 5) << i;
      }
    }
  });
}

TEST(CausalConvolution, AddsToGradientsOfWeights) {
  Convolution one({.rows = 40, .piece = 20, .channels = 24, .taps = 4, .silu = true}, true, false,
                  mixed_documents(40));
  one.backward();
  const Array dw = one.dw, dbias = one.dbias;
  one.weights(true);
  for (int64_t i = 0; i < dw.size(); ++i) EXPECT_EQ(one.dw[i], 2 * dw[i]);
  for (int64_t i = 0; i < dbias.size(); ++i) EXPECT_EQ(one.dbias[i], 2 * dbias[i]);
}

// Packed documents have the bits that each has by itself, forward and backward.
TEST(CausalConvolution, KeepsDocumentsApart) {
  const std::vector<int64_t> lengths{3, 1, 2, 17, 9, 1, 31};
  const ConvolutionShape shape{.rows = 64, .piece = 64, .channels = 24, .taps = 4, .silu = true};
  Convolution packed(shape, true, false, positions_of(lengths));
  packed.forward();
  packed.backward();
  int64_t first = 0;
  for (const int64_t length : lengths) {
    ConvolutionShape alone = shape;
    alone.rows = alone.piece = length;
    Convolution document(alone, true, false, positions_of({length}));
    for (int64_t i = 0; i < length * shape.channels; ++i) {
      document.x.set(i, packed.x[first * shape.channels + i]);
      document.dy.set(i, packed.dy[first * shape.channels + i]);
    }
    document.forward();
    document.backward();
    for (int64_t i = 0; i < length * shape.channels; ++i) {
      EXPECT_EQ(document.y[i], packed.y[first * shape.channels + i]) << length << " rows, " << i;
      EXPECT_EQ(document.dx[i], packed.dx[first * shape.channels + i]) << length << " rows, " << i;
    }
    first += length;
  }
}

// Rows that are not numbers do not reach those before them.
TEST(CausalConvolution, FirstRowsDoNotDependOnLaterOnes) {
  for (const DType dtype : testing::kActivationTypes) {
    const ConvolutionShape shape{
        .rows = 70, .piece = 70, .channels = 40, .taps = 4, .silu = true, .dtype = dtype};
    Convolution whole(shape, false, false, far_along(70));
    whole.forward();
    for (const int64_t kept : {1, 3, 4, 7, 18, 65}) {
      Convolution cut(shape, false, false, far_along(70));
      for (int64_t i = kept * shape.channels; i < cut.x.size(); ++i)
        cut.x.set(i, std::numeric_limits<double>::quiet_NaN());
      cut.forward();
      const auto bytes = static_cast<size_t>(kept * shape.channels * size_of(dtype));
      EXPECT_EQ(std::memcmp(cut.y.data(), whole.y.data(), bytes), 0) << kept;
      ConvolutionShape less = shape;
      less.rows = less.piece = kept;
      Convolution fewer(less, false, false, far_along(kept));
      std::memcpy(fewer.x.data(), whole.x.data(), bytes);
      std::memcpy(fewer.weight.data(), whole.weight.data(), whole.weight.bytes().size());
      fewer.forward();
      EXPECT_EQ(std::memcmp(fewer.y.data(), whole.y.data(), bytes), 0) << kept;
    }
  }
}

// Pieces that get the last rows of those before them, as ranks do, convolve as the whole sequences.
TEST(CausalConvolution, OfPiecesIsThatOfTheWhole) {
  for (const DType dtype : testing::kActivationTypes) {
    constexpr int64_t kSequences = 2, kPieces = 4, kPiece = 5, kTail = 3, kChannels = 24;
    const ConvolutionShape of_whole{.rows = kSequences * kPieces * kPiece,
                                    .piece = kPieces * kPiece,
                                    .channels = kChannels,
                                    .taps = kTail + 1,
                                    .silu = true,
                                    .dtype = dtype};
    ConvolutionShape of_pieces = of_whole;
    of_pieces.piece = kPiece;
    std::vector<int32_t> positions = positions_of({9, 11, 4, 2, 14});
    Convolution whole(of_whole, true, false, positions), pieces(of_pieces, true, true, positions);
    whole.forward();
    whole.backward();
    const int64_t row = kChannels * size_of(dtype), parts = kSequences * kPieces;
    Array tails(dtype, pieces.before.size());
    take_piece_ends(parts, kPiece * row, kTail * row, tails.data(), pieces.x.data());
    shift_pieces(kSequences, kPieces, kTail * row, false, pieces.before.data(), tails.data());
    pieces.forward();
    pieces.backward();
    EXPECT_TRUE(pieces.y.bytes() == whole.y.bytes());
    // The gradients of the rows before a piece go back to the piece that has them.
    Array back(dtype, tails.size()), spread(dtype, pieces.x.size());
    shift_pieces(kSequences, kPieces, kTail * row, true, back.data(), pieces.dbefore.data());
    put_piece_ends(parts, kPiece * row, kTail * row, spread.data(), back.data());
    std::vector<double> sums(static_cast<size_t>(spread.size()));
    for (int64_t i = 0; i < spread.size(); ++i) sums[static_cast<size_t>(i)] = spread[i] + pieces.dx[i];
    expect_near(whole.dx, sums, dtype == DType::kF32 ? 1e-6 : dtype == DType::kF16 ? 2e-3 : 1.6e-2);
    expect_near(pieces.dw, whole.dw.values(), 1e-6);
    expect_near(pieces.dbias, whole.dbias.values(), 1e-6);
  }
}

// A text token by token, in chunks of several lengths with padding, and whole: the same bits. Entries of other
// texts stay unchanged.
TEST(CausalConvolution, WithACacheIsThatOfTheWholeText) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t taps : {1, 2, 4, 16}) {
      constexpr int64_t kRows = 23, kChannels = 600, kEntries = 3;
      const ConvolutionShape shape{
          .rows = kRows, .piece = kRows, .channels = kChannels, .taps = taps, .silu = true, .dtype = dtype};
      Convolution whole(shape, true, false, positions_of({kRows}));
      whole.forward();
      for (const std::vector<int32_t>& counts :
           {std::vector<int32_t>(kRows, 1), std::vector<int32_t>{5, 1, 2, 0, 8, 3, 4}}) {
        constexpr int64_t kChunk = 8;
        const int64_t tail = taps - 1;
        const Array old = Array::random(dtype, kEntries * tail * kChannels, 9);
        Array cache = old, scratch = scratch_of(convolution_scratch_bytes(shape));
        int32_t position = 0;
        for (const int32_t count : counts) {
          ConvolutionShape chunk = shape;
          chunk.rows = chunk.piece = count == 1 ? 1 : kChunk;
          Array x(dtype, chunk.rows * kChannels), y(dtype, chunk.rows * kChannels);
          const auto bytes = static_cast<size_t>(count * kChannels * size_of(dtype));
          const auto* const from =
              whole.x.bytes().data() + static_cast<ptrdiff_t>(position) * kChannels * size_of(dtype);
          std::memcpy(x.data(), from, bytes);
          const int32_t slot = 1;
          convolution_cached(chunk, y.data(), cache.data(),
                             {x.data(), whole.weight.f32(), whole.bias.f32(), nullptr, nullptr},
                             {&position, &slot, &count}, scratch.data());
          const auto* const want =
              whole.y.bytes().data() + static_cast<ptrdiff_t>(position) * kChannels * size_of(dtype);
          EXPECT_EQ(std::memcmp(y.data(), want, bytes), 0) << taps << " taps from " << position;
          for (int64_t i = count * kChannels; i < y.size(); ++i) ASSERT_EQ(y[i], 0);
          position += count;
        }
        ASSERT_EQ(position, kRows);
        for (int64_t i = 0; i < tail * kChannels; ++i) {
          EXPECT_EQ(cache[i], old[i]);
          EXPECT_EQ(cache[tail * kChannels + i], whole.x[(kRows - tail) * kChannels + i]);
          EXPECT_EQ(cache[2 * tail * kChannels + i], old[2 * tail * kChannels + i]);
        }
      }
    }
  }
}

TEST(CausalConvolution, SameBitsForAnyThreads) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Convolution one({.rows = 700, .piece = 350, .channels = 1100, .taps = 4, .silu = true, .dtype = dtype},
                    true, true, mixed_documents(700));
    expect_same_bits([&] {
      one.forward();
      one.backward();
      return one.bytes();
    });
  }
}

TEST(CausalConvolution, RefusesMoreTapsThanItCounts) {
  Convolution one({.rows = 4, .piece = 4, .channels = 8, .taps = 17}, false, false, positions_of({4}));
  EXPECT_THROW(one.forward(), std::exception);
}

}  // namespace
}  // namespace strata::cpu
