#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "fixtures/every_target.h"
#include "fixtures/float_values.h"
#include "quantize/quantizer_testing.h"
#include "quantize/subnormals.h"

namespace strata::quantize {
namespace {

constexpr RandomKey kKey{21, 4};
constexpr Along kBoth[] = {Along::kRows, Along::kColumns};

const std::vector<ScaleRule>& all_rules() {
  static const std::vector<ScaleRule> kRules{ScaleRule::tensor(Format::kE4M3),
                                             ScaleRule::tensor(Format::kE5M2),
                                             ScaleRule::delayed(Format::kE5M2),
                                             ScaleRule::row(Format::kE4M3),
                                             ScaleRule::row(Format::kE4M3, PowerOfTwo::kNo),
                                             ScaleRule::block_row(Format::kE4M3),
                                             ScaleRule::block_row(Format::kE4M3, PowerOfTwo::kYes),
                                             ScaleRule::block_square(Format::kE4M3),
                                             ScaleRule::block_row(Format::kE4M3Fnuz),
                                             ScaleRule::mx(Format::kE4M3),
                                             ScaleRule::mx(Format::kE2M1, MxScale::kEven),
                                             ScaleRule::mx(Format::kE3M2, MxScale::kFloor),
                                             ScaleRule::nvfp4_row(),
                                             ScaleRule::nvfp4_square(),
                                             ScaleRule::nvfp4_by_row()};
  return kRules;
}

std::vector<float> transposed(const std::vector<float>& x, int64_t rows, int64_t columns) {
  std::vector<float> y(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      y[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * columns + j)];
  }
  return y;
}

uint8_t code_of(const Result& result, int64_t row, int64_t column, Format format) {
  const uint8_t* const codes = result.codes.data() + row * result.layout.code_row_bytes;
  if (format != Format::kE2M1) return codes[column];
  return codes[column / 2] >> (column % 2 * 4) & 15;
}

uint32_t scale_at(const Result& result, int64_t row, int64_t column) {
  const int64_t at = row * result.layout.scale_columns + column;
  if (result.layout.scale_type != ScaleType::kF32) return result.scales[static_cast<size_t>(at)];
  uint32_t bits = 0;
  std::memcpy(&bits, result.scales.data() + 4 * at, sizeof bits);
  return bits;
}

// By definition, one element after the other, of rows.
void expect_by_definition(const Result& result, const std::vector<float>& x, int64_t rows, int64_t columns,
                          const ScaleRule& rule) {
  const int64_t height = std::min(rule.block().rows, rows), width = std::min(rule.block().columns, columns);
  const auto greatest_of = [&](int64_t begin, int64_t end) {
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[static_cast<size_t>(i)]));
    return most;
  };
  const float of_tensor = greatest_of(0, rows * columns);
  for (int64_t top = 0; top < rows; top += height) {
    for (int64_t left = 0; left < columns; left += width) {
      float greatest = 0;
      for (int64_t i = top; i < std::min(top + height, rows); ++i) {
        for (int64_t j = left; j < std::min(left + width, columns); ++j)
          greatest = std::max(greatest, std::abs(x[static_cast<size_t>(i * columns + j)]));
      }
      const ScaleRule::Scale scale = rule.scale_of(
          greatest, rule.is_nvfp4_by_row() ? greatest_of(top * columns, (top + 1) * columns) : of_tensor);
      ASSERT_EQ(scale_at(result, top / height, left / width), scale.stored) << rows << 'x' << columns;
      for (int64_t i = top; i < std::min(top + height, rows); ++i) {
        for (int64_t j = left; j < std::min(left + width, columns); ++j) {
          const float value = x[static_cast<size_t>(i * columns + j)];
          const float scaled = rule.divides() ? value / scale.applied : value * scale.applied;
          ASSERT_EQ(code_of(result, i, j, rule.format()), encode(rule.format(), scaled))
              << i << ' ' << j << " of " << rows << 'x' << columns;
        }
      }
    }
  }
}

TEST(Quantizer, IsTheDefinitionForEveryShape) {
  fixtures::on_every_target([&](int64_t) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                        {1, 300},
                                        {300, 1},
                                        {15, 17},
                                        {16, 16},
                                        {33, 31},
                                        {127, 130},
                                        {128, 128},
                                        {129, 127},
                                        {131, 257}}) {
      const std::vector<float> x = golden_matrix(kKey, rows, columns, false),
                               y = transposed(x, rows, columns);
      for (const ScaleRule& rule : all_rules()) {
        const Source source = source_of(x, rows, columns);
        expect_by_definition(quantized(source, {rule}, Along::kRows), x, rows, columns, rule);
        expect_by_definition(quantized(source, {rule}, Along::kColumns), y, columns, rows, rule);
      }
    }
  });
}

TEST(Quantizer, OnePassForBothResultsIsTwoPasses) {
  constexpr int64_t kRows = 260, kColumns = 150;
  const std::vector<float> x = golden_matrix(kKey, kRows, kColumns, false);
  const Source source = source_of(x, kRows, kColumns);
  for (const ScaleRule& rule : all_rules()) {
    for (const bool transforms : {false, true}) {
      const Treatment plain{.rule = rule},
          other{.rule = rule,
                .stochastic = StochasticBits{kKey, 3},
                .hadamard = transforms ? std::optional(HadamardSigns{0x1234}) : std::nullopt};
      const Result rows = quantized(source, plain, Along::kRows),
                   columns = quantized(source, other, Along::kColumns);
      Result rows_too = empty_result(source, plain, Along::kRows),
             columns_too = empty_result(source, other, Along::kColumns);
      rows_too.greatest = rows.greatest;
      columns_too.greatest = columns.greatest;
      quantize(source, request_of(plain, rows_too), request_of(other, columns_too));
      EXPECT_EQ(rows_too, rows);
      EXPECT_EQ(columns_too, columns);
      EXPECT_NE(columns, quantized(source, plain, Along::kColumns));
    }
  }
}

TEST(Quantizer, ReadsRowsAtAnyStrideAndWritesOnlyItsOwn) {
  constexpr int64_t kRows = 37, kColumns = 145, kStride = 200;
  const std::vector<float> x = golden_matrix(kKey, kRows, kColumns, false);
  std::vector<float> wide(kRows * kStride, 1e30f);
  for (int64_t i = 0; i < kRows; ++i)
    std::copy_n(x.begin() + i * kColumns, kColumns, wide.begin() + i * kStride);
  Source strided = source_of(wide, kRows, kColumns);
  strided.stride = kStride;
  for (const ScaleRule& rule : all_rules()) {
    const Treatment treatment{rule, StochasticBits{kKey, 6}};
    for (const Along along : kBoth) {
      const Result wanted = quantized(source_of(x, kRows, kColumns), treatment, along);
      Result result = empty_result(strided, treatment, along);
      for (auto* const bytes : {&result.codes, &result.scales}) bytes->resize(bytes->size() + 64, 0xee);
      result.greatest = wanted.greatest;
      const auto request = request_of(treatment, result);
      along == Along::kRows ? quantize(strided, request, std::nullopt)
                            : quantize(strided, std::nullopt, request);
      for (auto* const bytes : {&result.codes, &result.scales}) {
        EXPECT_TRUE(std::all_of(bytes->end() - 64, bytes->end(), [](uint8_t byte) { return byte == 0xee; }));
        bytes->resize(bytes->size() - 64);
      }
      EXPECT_EQ(result, wanted);
    }
  }
}

// Blocks that divide may multiply by a reciprocal of two parts instead: quotients next to every tie of the codes, of
// divisors of many significands and those that the reciprocal cannot serve.
TEST(Quantizer, QuotientsNextToTiesRoundAsDivisionsDo) {
  constexpr int64_t kRows = 256, kColumns = 128;
  for (const Format format : {Format::kE4M3, Format::kE5M2}) {
    const ScaleRule rule = ScaleRule::block_row(format);
    std::vector<float> x(kRows * kColumns);
    for (int64_t i = 0; i < kRows; ++i) {
      const uint32_t word = random_word({kKey, 5}, i);
      // Every other divisor ends in ones, or in ones and a zero.
      const uint32_t ones = i % 4 == 0 ? 0xfffffu : i % 4 == 2 ? 0xffffeu : 0;
      const auto wanted = std::bit_cast<float>(0x3f800000u | (word >> 9) | ones);
      const float divisor = rule.scale_of(wanted * largest_of(format)).applied;
      float* const row = x.data() + i * kColumns;
      for (int64_t j = 1; j < kColumns; ++j) {
        // Between two codes, and up to two fp32 numbers away.
        const float tie = (decode(format, static_cast<uint32_t>(j % 100)) +
                           decode(format, static_cast<uint32_t>(j % 100 + 1))) /
                          2;
        const auto away = static_cast<uint32_t>((i + j) % 5);
        row[j] = std::bit_cast<float>(std::bit_cast<uint32_t>(divisor * tie) + away - 2);
        if (j % 3 == 0) row[j] = -row[j];
      }
      row[0] = wanted * largest_of(format);
      row[1] = -0.0f;
    }
    fixtures::on_every_target([&](int64_t) {
      const std::vector<float> y = transposed(x, kRows, kColumns);
      expect_by_definition(quantized(source_of(x, kRows, kColumns), {rule}, Along::kRows), x, kRows, kColumns,
                           rule);
      expect_by_definition(quantized(source_of(y, kColumns, kRows), {rule}, Along::kColumns), x, kRows,
                           kColumns, rule);
    });
  }
}

// Codes of large results go past the caches if whole lines of memory belong to them.
TEST(Quantizer, LargeResultsAreTheSameAtEveryAlignment) {
  constexpr int64_t kRows = 4096 + 17, kColumns = 2048 + 64;
  std::vector<float> x(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 10007) * 0x1p-8f - 19.0f;
  const Treatment treatment{ScaleRule::block_row(Format::kE4M3)};
  Source source = source_of(x, kRows, kColumns);
  source.rows = 4096;  // along columns too, lines are whole then
  fixtures::on_every_target([&](int64_t) {
    Result at_lines[2], between[2];
    std::optional<Request> requests[2], others[2];
    std::vector<uint8_t> memory[4];
    for (const Along along : kBoth) {
      const auto k = static_cast<size_t>(along);
      for (size_t shift = 0; shift < 2; ++shift) {
        Result& result = shift == 0 ? at_lines[k] : between[k];
        result = empty_result(source, treatment, along);
        auto& bytes = memory[2 * k + shift];
        bytes.resize(result.codes.size() + 128);
        uint8_t* const line = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64);
        Request request = request_of(treatment, result);
        request.to.codes = line + shift;
        (shift == 0 ? requests : others)[k] = request;
      }
    }
    quantize(source, requests[0], requests[1]);
    quantize(source, others[0], others[1]);
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(std::memcmp(requests[k]->to.codes, others[k]->to.codes, at_lines[k].codes.size()), 0);
      EXPECT_EQ(at_lines[k].scales, between[k].scales);
    }
    // Against rows that are few enough to stay in the caches.
    Source few = source;
    few.rows = 128;
    const Result wanted = quantized(few, treatment, Along::kRows);
    EXPECT_EQ(std::memcmp(requests[0]->to.codes, wanted.codes.data(), wanted.codes.size()), 0);
  });
}

TEST(Quantizer, ThreadsAndFlushedSubnormalsChangeNothing) {
  constexpr int64_t kRows = 700, kColumns = 390;
  const std::vector<float> x = golden_matrix(kKey, kRows, kColumns, true);
  const Source source = source_of(x, kRows, kColumns);
  const Treatment treatments[] = {{ScaleRule::block_row(Format::kE4M3)},
                                  {ScaleRule::mx(Format::kE4M3, MxScale::kFloor)},
                                  {ScaleRule::row(Format::kE4M3), StochasticBits{kKey, 1}},
                                  {ScaleRule::tensor(Format::kE5M2)}};
  for (const Treatment& treatment : treatments) {
    for (const Along along : kBoth) {
      const KeepSubnormals as_before;
      set_compute_threads(1);
      const Result one = quantized(source, treatment, along);
      set_compute_threads(3);
      EXPECT_EQ(quantized(source, treatment, along), one);
      const KeepSubnormals restore;
      flush_denormals();
      const Result flushed = quantized(source, treatment, along);
      EXPECT_EQ(flushed, one);
      EXPECT_EQ(dequantized(treatment.rule, flushed).size(), x.size());
    }
  }
}

// Of values that a rule does not have to clamp, the error is at most half a unit in the last place, or half the
// least code's step.
TEST(Quantizer, DecodedValuesAreNear) {
  constexpr int64_t kRows = 140, kColumns = 200;
  const std::vector<float> x = cpu::values(kRows * kColumns, 5, 3.0f);
  for (const ScaleRule& rule : all_rules()) {
    if (rule.scale_type() == ScaleType::kE8M0 && rule.format() != Format::kE4M3)
      continue;  // these modes saturate
    const FormatSpec spec = spec_of(rule.format());
    for (const Along along : kBoth) {
      const Result result = quantized(source_of(x, kRows, kColumns), {rule}, along);
      const std::vector<float> back = dequantized(rule, result);
      const std::vector<float> wanted = along == Along::kRows ? x : transposed(x, kRows, kColumns);
      // nvfp4 rounds the scale itself to e4m3: a block's greatest may saturate, by 1/16 of it at most.
      const double share =
          rule.scale_type() == ScaleType::kE4M3 ? 0.25 + 0.0625 : std::ldexp(0.5, -spec.mantissa_bits);
      for (size_t i = 0; i < back.size(); ++i)
        ASSERT_NEAR(double{back[i]}, double{wanted[i]},
                    share * std::abs(double{wanted[i]}) * 1.0001 + 0.15 * (spec.bits() == 4) + 2e-3);
    }
  }
}

TEST(Quantizer, ZerosStayZeros) {
  const std::vector<float> x(40 * 50, 0.0f);
  for (const ScaleRule& rule : all_rules()) {
    for (const Along along : kBoth) {
      const Result result = quantized(source_of(x, 40, 50), {rule}, along);
      for (const float value : dequantized(rule, result)) ASSERT_EQ(value, 0.0f);
    }
  }
}

TEST(Quantizer, NanStaysInItsBlock) {
  constexpr int64_t kRows = 200, kColumns = 300, kRow = 140, kColumn = 37;
  std::vector<float> x = cpu::values(kRows * kColumns, 5, 3.0f);
  x[kRow * kColumns + kColumn] = std::nanf("");
  for (const ScaleRule& rule : all_rules()) {
    const int64_t height = rule.block().rows, width = rule.is_nvfp4_by_row() ? kWhole : rule.block().columns;
    const bool whole = rule.needs() == ScaleRule::Needs::kTensor;
    const std::vector<float> back =
        dequantized(rule, quantized(source_of(x, kRows, kColumns), {rule}, Along::kRows));
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        const bool inside = whole || (i / height == kRow / height && j / width == kColumn / width);
        ASSERT_EQ(std::isnan(back[static_cast<size_t>(i * kColumns + j)]), inside) << i << ' ' << j;
      }
    }
  }
}

TEST(Quantizer, TinyTensorsDecodeToNearbyNumbers) {
  for (const float size : {1e-30f, 1e-36f, 1e-39f, 1e-44f}) {
    const std::vector<float> x = cpu::values(32 * 32, 5, size);
    for (const ScaleRule& rule : all_rules()) {
      const std::vector<float> back =
          dequantized(rule, quantized(source_of(x, 32, 32), {rule}, Along::kRows));
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(double{back[i]}, double{x[i]}, double{size}) << size;
    }
  }
}

// A tensor whose greatest magnitude is far below 1, with a block that is smaller still: its values are too small for
// codes, and the reciprocal of its scale must not overflow.
TEST(Quantizer, TinyBlocksOfNvfp4AreZeros) {
  std::vector<float> x(32, 1e-40f);
  x[0] = 1e-35f;
  const ScaleRule rule = ScaleRule::nvfp4_row();
  const std::vector<float> back = dequantized(rule, quantized(source_of(x, 1, 32), {rule}, Along::kRows));
  EXPECT_NEAR(double{back[0]}, 1e-35, 1e-36);
  for (size_t i = 16; i < 32; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), 0u);
}

TEST(Quantizer, SquareBlocksTransposeExactly) {
  constexpr int64_t kRows = 150, kColumns = 290;
  const std::vector<float> x = golden_matrix(kKey, kRows, kColumns, false);
  for (const ScaleRule& rule : {ScaleRule::block_square(Format::kE4M3), ScaleRule::nvfp4_square(),
                                ScaleRule::tensor(Format::kE4M3)}) {
    const Source source = source_of(x, kRows, kColumns);
    const Result rows = quantized(source, {rule}, Along::kRows),
                 columns = quantized(source, {rule}, Along::kColumns);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j)
        ASSERT_EQ(code_of(rows, i, j, rule.format()), code_of(columns, j, i, rule.format()));
    }
    for (int64_t i = 0; i < rows.layout.scale_rows; ++i) {
      for (int64_t j = 0; j < rows.layout.scale_columns; ++j)
        ASSERT_EQ(scale_at(rows, i, j), scale_at(columns, j, i));
    }
  }
}

// Ranks and micro-batches have consecutive rows of a tensor; they agree on its greatest magnitude.
TEST(Quantizer, ShardsOfATensorHaveTheCodesOfTheWhole) {
  constexpr int64_t kRows = 300, kColumns = 75, kSplit = 123;
  const std::vector<float> x = golden_matrix(kKey, kRows, kColumns, false);
  const Source whole = source_of(x, kRows, kColumns);
  Source first = whole, second = whole;
  first.rows = kSplit;
  second.rows = kRows - kSplit;
  second.data = x.data() + kSplit * kColumns;
  second.first = kSplit * kColumns;
  for (const ScaleRule& rule :
       {ScaleRule::tensor(Format::kE4M3), ScaleRule::row(Format::kE4M3), ScaleRule::block_row(Format::kE4M3),
        ScaleRule::nvfp4_row(), ScaleRule::nvfp4_by_row()}) {
    const Treatment treatment{rule, StochasticBits{kKey, 8}};
    const Result wanted = quantized(whole, treatment, Along::kRows);
    std::vector<uint8_t> codes;
    std::vector<float> greatest(wanted.greatest.size(), 0.0f);
    for (const Source& shard : {first, second}) {
      Result part = empty_result(shard, treatment, Along::kRows);
      find_greatest(shard, treatment, Along::kRows, part.greatest.data());
      if (part.greatest.size() == 1) greatest[0] = std::max(greatest[0], part.greatest[0]);
    }
    const bool shared = rule.needs() == ScaleRule::Needs::kTensor;
    EXPECT_TRUE(!shared || greatest == wanted.greatest);
    for (const Source& shard : {first, second}) {
      Result part = empty_result(shard, treatment, Along::kRows);
      find_greatest(shard, treatment, Along::kRows, part.greatest.data());
      if (shared) part.greatest = greatest;
      quantize(shard, request_of(treatment, part), std::nullopt);
      codes.insert(codes.end(), part.codes.begin(), part.codes.end());
    }
    EXPECT_EQ(codes, wanted.codes);
  }
}

TEST(Quantizer, StaleGreatestMagnitudesSaturate) {
  const std::vector<float> x{1.0f, -3.0f, 500.0f, -std::numeric_limits<float>::infinity()};
  const Treatment treatment{ScaleRule::delayed(Format::kE4M3)};
  Result result = empty_result(source_of(x, 1, 4), treatment, Along::kRows);
  result.greatest = {2.0f};
  quantize(source_of(x, 1, 4), request_of(treatment, result), std::nullopt);
  EXPECT_EQ(dequantized(treatment.rule, result), (std::vector<float>{1.0f, -2.0f, 2.0f, -2.0f}));
}

TEST(Quantizer, HadamardInVectorsIsTheDefinition) {
  constexpr int64_t kRows = 19, kColumns = 150;
  const std::vector<float> x = golden_matrix(kKey, kRows, kColumns, false);
  std::vector<float> y = x;
  const KeepSubnormals keep;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j + kHadamard <= kColumns; j += kHadamard)
      hadamard_16(y.data() + i * kColumns + j, 1, HadamardSigns{0x6a31});
  }
  const ScaleRule rule = ScaleRule::nvfp4_row();
  const Treatment transforms{.rule = rule, .hadamard = HadamardSigns{0x6a31}};
  fixtures::on_every_target([&](int64_t) {
    EXPECT_EQ(quantized(source_of(x, kRows, kColumns), transforms, Along::kRows),
              quantized(source_of(y, kRows, kColumns), {rule}, Along::kRows));
    const std::vector<float> across = transposed(x, kRows, kColumns), other = transposed(y, kRows, kColumns);
    EXPECT_EQ(quantized(source_of(across, kColumns, kRows), transforms, Along::kColumns),
              quantized(source_of(other, kColumns, kRows), {rule}, Along::kColumns));
  });
}

TEST(Quantizer, HadamardKeepsMatmuls) {
  std::vector<float> x = cpu::values(16, 1, 2.0f), y = cpu::values(16, 2, 2.0f);
  const std::vector<float> before = x;
  double plain = 0, turned = 0;
  for (size_t i = 0; i < 16; ++i) plain += double{x[i]} * double{y[i]};
  const HadamardSigns signs = hadamard_signs(kKey, 3);
  EXPECT_NE(signs.bits, hadamard_signs(kKey, 4).bits);
  hadamard_16(x.data(), 1, signs);
  hadamard_16(y.data(), 1, signs);
  for (size_t i = 0; i < 16; ++i) {
    turned += double{x[i]} * double{y[i]};
    // Row i of Sylvester's matrix has the sign of the parity of i & j.
    double sum = 0;
    for (size_t j = 0; j < 16; ++j) {
      const bool negative = (std::popcount(i & j) + (signs.bits >> j & 1)) % 2 != 0;
      sum += negative ? -double{before[j]} : double{before[j]};
    }
    EXPECT_NEAR(double{x[i]}, sum / 4, 1e-6);
  }
  EXPECT_NEAR(turned, plain, 1e-5);
}

TEST(Quantizer, LayoutsAreThoseOfTheFormats) {
  const auto sizes = [](const ScaleRule& rule) {
    const QuantizedLayout layout = layout_of(rule, 200, 301);
    return std::vector<int64_t>{layout.code_bytes(), layout.scale_rows, layout.scale_columns,
                                layout.scale_bytes(), layout.greatest};
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes(ScaleRule::tensor(Format::kE4M3)), (Sizes{60200, 1, 1, 4, 1}));
  EXPECT_EQ(sizes(ScaleRule::row(Format::kE4M3)), (Sizes{60200, 200, 1, 800, 200}));
  EXPECT_EQ(sizes(ScaleRule::block_row(Format::kE4M3)), (Sizes{60200, 200, 3, 2400, 0}));
  EXPECT_EQ(sizes(ScaleRule::block_square(Format::kE4M3)), (Sizes{60200, 2, 3, 24, 0}));
  EXPECT_EQ(sizes(ScaleRule::mx(Format::kE4M3)), (Sizes{60200, 200, 10, 2000, 0}));
  EXPECT_EQ(sizes(ScaleRule::nvfp4_row()), (Sizes{200 * 151, 200, 19, 3800, 1}));
  EXPECT_EQ(sizes(ScaleRule::nvfp4_square()), (Sizes{200 * 151, 13, 19, 247, 1}));
  EXPECT_EQ(sizes(ScaleRule::nvfp4_by_row()), (Sizes{200 * 151, 200, 19, 3800, 200}));
  EXPECT_EQ(layout_of(ScaleRule::tensor(Format::kE4M3), 0, 5).scale_bytes(), 0);
}

TEST(Quantizer, RefusesWhatItCannotDo) {
  EXPECT_THROW(ScaleRule::tensor(Format::kE2M1), InternalError);
  EXPECT_THROW(ScaleRule::block_row(Format::kE8M0), InternalError);
  EXPECT_THROW(ScaleRule::mx(Format::kE4M3Fnuz), InternalError);
  const std::vector<float> x(64, 1.0f);
  Source source = source_of(x, 8, 8);
  const Treatment treatment{ScaleRule::tensor(Format::kE4M3)};
  Result result = empty_result(source, treatment, Along::kRows);
  Request request = request_of(treatment, result);
  request.greatest = nullptr;
  EXPECT_THROW(quantize(source, request, std::nullopt), InternalError);
  source.stride = 7;
  EXPECT_THROW(quantize(source, request_of(treatment, result), std::nullopt), InternalError);
  source.stride = 8;
  source.dtype = DType::kF64;
  EXPECT_THROW(quantize(source, request_of(treatment, result), std::nullopt), InternalError);
}

}  // namespace
}  // namespace strata::quantize
