#include "kernels/cpu/scaled_gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/parallel.h"
#include "fixtures/every_target.h"
#include "fixtures/host_device.h"
#include "kernels/cpu/scaled_testing.h"
#include "kernels/cpu/with_threads.h"
#include "quantize/golden.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using quantize::Format;
using quantize::PowerOfTwo;
using quantize::ScaleRule;
using testing::QuantizedOperand;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

hardware::DeviceSpec device_with(bool pairs, int threads = 2) {
  static const hardware::DeviceSpec kHost = fixtures::host_device();
  hardware::DeviceSpec device = kHost;
  device.threads = threads;
  device.isa.avx512_bf16 = pairs;
  device.isa.amx = false;
  return device;
}

struct Options {
  DType out = DType::kF32;
  const std::vector<float>* bias = nullptr;
  const std::vector<float>* before = nullptr;  // accumulates
  PartialSums sums = PartialSums::kF32;
  int threads = 1;
};

// In poisoned memory; checks that nothing beyond c is written.
std::vector<float> multiplied(const QuantizedOperand& a, const QuantizedOperand& b, bool pairs,
                              const Options& options = {}) {
  const ScaledGemmSpec spec{.rows = a.count,
                            .cols = b.count,
                            .depth = a.depth,
                            .a = a.operand,
                            .b = b.operand,
                            .out_dtype = options.out,
                            .bias = options.bias != nullptr,
                            .accumulate = options.before != nullptr,
                            .sums = options.sums};
  const ScaledGemmPlan plan = plan_scaled_gemm(spec, device_with(pairs, options.threads));
  const detail::WithThreads threads(options.threads);
  Arena scratch(plan.scratch_bytes + 64);
  std::fill_n(scratch.data(), plan.scratch_bytes, std::byte{0xff});
  const auto size = static_cast<size_t>(a.count * b.count);
  constexpr size_t kBeyond = 70;
  std::vector<float> c(size + kBeyond, kNan);
  if (options.before != nullptr) std::copy(options.before->begin(), options.before->end(), c.begin());
  std::vector<BF16> halves(size + kBeyond, BF16(kNan));
  const bool half = options.out == DType::kBF16;
  run_scaled_gemm(plan, a.matrix(), b.matrix(), options.bias != nullptr ? options.bias->data() : nullptr,
                  half ? static_cast<void*>(halves.data()) : c.data(), scratch.data());
  if (half)
    std::transform(halves.begin(), halves.end(), c.begin(), [](BF16 v) { return static_cast<float>(v); });
  for (size_t i = size; i < c.size(); ++i) EXPECT_TRUE(std::isnan(c[i]));
  c.resize(size);
  return c;
}

void expect_product(const std::vector<float>& c, const testing::Product64& product, int64_t cols,
                    double tolerance) {
  const auto& [sums, sizes] = product;
  for (size_t i = 0; i < c.size(); ++i) {
    if (std::isnan(sums[i])) {
      ASSERT_TRUE(std::isnan(c[i])) << i;
      continue;
    }
    ASSERT_LE(std::abs(double{c[i]} - sums[i]), tolerance * sizes[i] + 1e-37)
        << "row " << i / static_cast<size_t>(cols) << ", column " << i % static_cast<size_t>(cols) << ": "
        << c[i] << " instead of " << sums[i];
  }
}
void expect_product(const std::vector<float>& c, const QuantizedOperand& a, const QuantizedOperand& b,
                    double tolerance) {
  expect_product(c, testing::product_of(a, b), b.count, tolerance);
}

double tolerance_of(int64_t depth) {
  return (8 + std::sqrt(static_cast<double>(depth))) * 0x1p-24;
}

bool is_possible(const ScaledOperand& operand) {
  const ScaleRule& rule = operand.rule;
  return !operand.depth_first || rule.powers_of_two() || rule.block().rows > 1 ||
         rule.scale_type() != quantize::ScaleType::kF32;
}

std::vector<ScaledOperand> all_operands() {
  std::vector<ScaledOperand> all;
  for (const ScaleRule& rule : testing::operand_rules()) {
    for (const bool depth_first : {false, true}) {
      if (is_possible({rule, depth_first})) all.push_back({rule, depth_first});
    }
  }
  return all;
}

std::string name_of(const ScaledOperand& operand) {
  const auto [rows, columns] = operand.rule.block();
  return std::string(quantize::spec_of(operand.rule.format()).name) + " " + std::to_string(rows) + "x" +
         std::to_string(columns) + (operand.depth_first ? " depth first" : "");
}

TEST(ScaledGemm, IsTheProductOfTheDecodedOperandsForAnyPair) {
  constexpr int64_t kRows = 9, kCols = 67, kDepth = 301;
  std::vector<QuantizedOperand> as, bs;
  for (const ScaledOperand& operand : all_operands()) {
    as.push_back(testing::hard_operand(operand, kRows, kDepth, 1));
    bs.push_back(testing::hard_operand(operand, kCols, kDepth, 2));
  }
  EXPECT_GE(as.size(), 18u);
  for (const QuantizedOperand& a : as) {
    for (const QuantizedOperand& b : bs) {
      const testing::Product64 product = testing::product_of(a, b);
      for (const bool pairs : {false, true}) {
        SCOPED_TRACE(name_of(a.operand) + ", " + name_of(b.operand) + (pairs ? ", pairs" : ""));
        expect_product(multiplied(a, b, pairs), product, kCols, tolerance_of(kDepth));
      }
    }
  }
}

// Recipes of quantizers as their publishers describe them, and fp64 (tools/golden/precision_matmuls.py).
TEST(ScaledGemm, HasTheSumsOfNumPy) {
  const auto file = quantize::golden("matmuls.json");
  const auto rows = file["rows"].get<int64_t>(), cols = file["cols"].get<int64_t>(),
             depth = file["depth"].get<int64_t>();
  struct Recipe {
    std::string name;
    ScaledOperand a, b;
  };
  const ScaledOperand row{ScaleRule::block_row(Format::kE4M3)}, tensor{ScaleRule::tensor(Format::kE4M3)},
      mx{ScaleRule::mx(Format::kE4M3)}, fp4{ScaleRule::nvfp4_row()};
  const std::vector<Recipe> recipes{
      {"tensor", tensor, tensor},
      {"block", row, {ScaleRule::block_square(Format::kE4M3)}},
      {"block depth first", row, {ScaleRule::block_square(Format::kE4M3), true}},
      {"mxfp8", mx, mx},
      {"nvfp4", fp4, {ScaleRule::nvfp4_square()}},
      {"nvfp4 depth first", fp4, {ScaleRule::nvfp4_square(), true}}};
  EXPECT_EQ(recipes.size(), file["recipes"].size());
  const auto matrix = [&](int stream, int64_t height, int64_t width) {
    return quantize::golden_matrix(
        {file["seed"].get<uint64_t>(), file["streams"][static_cast<size_t>(stream)].get<uint32_t>()}, height,
        width, false);
  };
  for (const Recipe& recipe : recipes) {
    const auto& wanted = file["recipes"][recipe.name];
    const auto a = testing::quantized_operand(recipe.a, matrix(0, rows, depth), rows, depth);
    const bool depth_first = recipe.b.depth_first;
    const auto b = testing::quantized_operand(
        recipe.b, matrix(1, depth_first ? depth : cols, depth_first ? cols : depth), cols, depth);
    const testing::Product64 product{wanted["sums"].get<std::vector<double>>(),
                                     wanted["sizes"].get<std::vector<double>>()};
    for (const bool pairs : {false, true}) {
      SCOPED_TRACE(recipe.name);
      expect_product(multiplied(a, b, pairs), product, cols, tolerance_of(depth));
    }
  }
}

TEST(ScaledGemm, TakesAnySize) {
  struct Sizes {
    int64_t rows, cols, depth;
  };
  for (const Sizes& s : {Sizes{0, 3, 5}, Sizes{3, 0, 5}, Sizes{3, 5, 0}, Sizes{1, 1, 1}, Sizes{1, 65, 127},
                         Sizes{130, 97, 128}, Sizes{7, 64, 129}, Sizes{97, 33, 300}, Sizes{3, 30, 2500}}) {
    for (const ScaledOperand& operand : all_operands()) {
      const auto a = testing::hard_operand(operand, s.rows, s.depth, 3);
      const auto b = testing::hard_operand({ScaleRule::block_square(Format::kE4M3)}, s.cols, s.depth, 4);
      const testing::Product64 product = testing::product_of(a, b);
      for (const bool pairs : {false, true}) {
        SCOPED_TRACE(name_of(operand) + " " + std::to_string(s.rows) + "x" + std::to_string(s.cols) + "x" +
                     std::to_string(s.depth));
        expect_product(multiplied(a, b, pairs), product, s.cols, tolerance_of(s.depth));
      }
    }
  }
}

TEST(ScaledGemm, AddsABiasAndToAResultAndRoundsToBf16) {
  constexpr int64_t kRows = 100, kCols = 131, kDepth = 700;
  const auto a = testing::hard_operand({ScaleRule::block_row(Format::kE4M3)}, kRows, kDepth, 5);
  const auto b = testing::hard_operand({ScaleRule::block_square(Format::kE4M3)}, kCols, kDepth, 6);
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::vector<float> bias(kCols), before(kRows * kCols);
  for (auto* const values : {&bias, &before}) {
    for (float& value : *values) value = normal(engine) * 1000;
  }
  for (const bool pairs : {false, true}) {
    const std::vector<float> plain = multiplied(a, b, pairs);
    const std::vector<float> biased = multiplied(a, b, pairs, {.bias = &bias});
    const std::vector<float> added = multiplied(a, b, pairs, {.before = &before});
    const std::vector<float> rounded = multiplied(a, b, pairs, {.out = DType::kBF16});
    const auto [sums, sizes] = testing::product_of(a, b);
    for (size_t i = 0; i < plain.size(); ++i) {
      const double tolerance = tolerance_of(kDepth) * (sizes[i] + 5000);
      ASSERT_NEAR(biased[i], sums[i] + bias[i % kCols], tolerance);
      ASSERT_NEAR(added[i], sums[i] + before[i], tolerance);
      ASSERT_NEAR(rounded[i], sums[i], std::abs(sums[i]) * 0x1p-8 + tolerance);
    }
  }
}

TEST(ScaledGemm, HasTheSameBitsForAnyThreadsAndAnyOtherRows) {
  constexpr int64_t kRows = 300, kCols = 270, kDepth = 1300;
  for (const ScaleRule& rule : {ScaleRule::block_row(Format::kE4M3), ScaleRule::mx(Format::kE4M3)}) {
    const auto a = testing::hard_operand({rule}, kRows, kDepth, 7);
    const auto b = testing::hard_operand({rule}, kCols, kDepth, 8);
    for (const bool pairs : {false, true}) {
      const std::vector<float> wanted = multiplied(a, b, pairs, {.threads = 1});
      for (const int threads : {2, 3}) EXPECT_EQ(multiplied(a, b, pairs, {.threads = threads}), wanted);
      // Rows 37 … 47 by themselves.
      constexpr int64_t kFirst = 37, kSome = 11;
      QuantizedOperand some{.operand = a.operand, .count = kSome, .depth = kDepth, .result = a.result};
      const auto& layout = a.result.layout;
      some.result.layout = layout_of(rule, kSome, kDepth);
      const auto part = [&](std::vector<uint8_t>& bytes, int64_t of_row) {
        bytes.erase(bytes.begin(), bytes.begin() + kFirst * of_row);
        bytes.resize(static_cast<size_t>(kSome * of_row));
      };
      part(some.result.codes, layout.code_row_bytes);
      part(some.result.scales, layout.scale_bytes() / layout.rows);
      const std::vector<float> alone = multiplied(some, b, pairs);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), wanted.begin() + kFirst * kCols));
    }
  }
}

TEST(ScaledGemm, PairsHaveTheSameBitsOnEveryTarget) {
  constexpr int64_t kRows = 40, kCols = 90, kDepth = 333;
  for (const ScaledOperand& operand : all_operands()) {
    const auto a = testing::hard_operand(operand, kRows, kDepth, 9);
    const auto b = testing::hard_operand({ScaleRule::block_square(Format::kE4M3)}, kCols, kDepth, 10);
    const std::vector<float> wanted = multiplied(a, b, true);
    strata::fixtures::on_every_target([&](int64_t) { EXPECT_EQ(multiplied(a, b, true), wanted); });
  }
}

TEST(HopperSums, HaveTheSameBitsOnEveryTarget) {
  const auto a = testing::hard_operand({ScaleRule::row(Format::kE5M2, PowerOfTwo::kNo)}, 19, 333, 9);
  const auto b = testing::hard_operand({ScaleRule::block_square(Format::kE4M3), true}, 37, 333, 10);
  const std::vector<float> wanted = multiplied(a, b, false, {.sums = PartialSums::kHopper});
  strata::fixtures::on_every_target(
      [&](int64_t) { EXPECT_EQ(multiplied(a, b, false, {.sums = PartialSums::kHopper}), wanted); });
}

TEST(ScaledGemm, PassesNanOn) {
  constexpr int64_t kRows = 9, kCols = 66, kDepth = 200;
  for (const ScaledOperand& operand : all_operands()) {
    const int64_t rows = operand.depth_first ? kDepth : kRows, columns = operand.depth_first ? kRows : kDepth;
    std::vector<float> stored = quantize::golden_matrix({1, 2}, rows, columns, false);
    stored[static_cast<size_t>(operand.depth_first ? 5 * columns + 4 : 4 * columns + 5)] = kNan;
    const auto a = testing::quantized_operand(operand, stored, kRows, kDepth);
    const auto b = testing::hard_operand({ScaleRule::block_row(Format::kE4M3)}, kCols, kDepth, 11);
    for (const bool pairs : {false, true}) {
      SCOPED_TRACE(name_of(operand));
      const std::vector<float> c = multiplied(a, b, pairs);
      expect_product(c, a, b, tolerance_of(kDepth));
      EXPECT_TRUE(std::isnan(c[4 * kCols]));
      expect_product(multiplied(b, a, pairs), b, a, tolerance_of(kDepth));
    }
  }
}

// All codes with all scales of MX, also those whose values bf16 and fp32 flush.
TEST(ScaledGemm, KeepsScalesAtTheEndsOfTheirRange) {
  constexpr int64_t kRows = 6, kCols = 3, kDepth = 256;
  auto a = testing::hard_operand({ScaleRule::mx(Format::kE4M3)}, kRows, kDepth, 12);
  auto b = testing::hard_operand({ScaleRule::mx(Format::kE5M2)}, kCols, kDepth, 13);
  const uint8_t of_a[kRows] = {0, 1, 20, 127, 230, 252}, of_b[kCols] = {239, 127, 10};
  for (int64_t i = 0; i < kRows; ++i)
    std::fill_n(a.result.scales.begin() + i * kDepth / 32, kDepth / 32, of_a[i]);
  for (int64_t j = 0; j < kCols; ++j)
    std::fill_n(b.result.scales.begin() + j * kDepth / 32, kDepth / 32, of_b[j]);
  a.decode();
  b.decode();
  for (const bool pairs : {false, true}) {
    const std::vector<float> c = multiplied(a, b, pairs);
    const auto [sums, sizes] = testing::product_of(a, b);
    for (size_t i = 0; i < c.size(); ++i) {
      if (sizes[i] < 0x1p-120) continue;
      if (std::abs(sums[i]) > 0x1p127) {
        EXPECT_GT(std::abs(double{c[i]}), 0x1p126) << i;
      } else {
        EXPECT_LE(std::abs(double{c[i]} - sums[i]), sizes[i] * tolerance_of(kDepth)) << i;
      }
    }
  }
  // A tensor's scale that is subnormal, against one that is huge.
  auto tiny = testing::hard_operand({ScaleRule::delayed(Format::kE4M3)}, kRows, kDepth, 14);
  auto huge = testing::hard_operand({ScaleRule::delayed(Format::kE5M2)}, kCols, kDepth, 15);
  const float scales[] = {0x1.8p-129f, 0x1.4p100f};
  std::memcpy(tiny.result.scales.data(), &scales[0], 4);
  std::memcpy(huge.result.scales.data(), &scales[1], 4);
  tiny.decode();
  huge.decode();
  for (const bool pairs : {false, true})
    expect_product(multiplied(tiny, huge, pairs), tiny, huge, tolerance_of(kDepth));
}

TEST(ScaledGemm, RejectsWhatItCannotMultiply) {
  const auto plan = [](const ScaledGemmSpec& spec) { return plan_scaled_gemm(spec, device_with(false)); };
  const ScaledOperand tensor{ScaleRule::tensor(Format::kE4M3)};
  const auto spec_of_a = [&](const ScaledOperand& a) {
    return ScaledGemmSpec{.rows = 3, .cols = 4, .depth = 5, .a = a, .b = tensor};
  };
  EXPECT_THROW(plan(spec_of_a({ScaleRule::row(Format::kE4M3, PowerOfTwo::kNo), true})), InternalError);
  EXPECT_THROW(plan(spec_of_a({ScaleRule::block_row(Format::kE4M3), true})), InternalError);
  ScaledGemmSpec spec = spec_of_a(tensor);
  EXPECT_EQ(plan(spec).cost.flops, 2 * 3 * 4 * 5);
  spec.rows = -1;
  EXPECT_THROW(plan(spec), InternalError);
  spec = spec_of_a(tensor);
  spec.out_dtype = DType::kBF16;
  spec.accumulate = true;
  EXPECT_THROW(plan(spec), InternalError);
  for (const ScaleRule& rule :
       {ScaleRule::mx(Format::kE4M3), ScaleRule::nvfp4_row(), ScaleRule::tensor(Format::kE4M3Fnuz)}) {
    spec = spec_of_a({rule});
    spec.sums = PartialSums::kHopper;
    EXPECT_THROW(plan(spec), InternalError);
  }
}

// By definition, one element, in fp64 and integers.
double hopper_sum(const QuantizedOperand& a, const QuantizedOperand& b, int64_t row, int64_t col,
                  int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t deep = begin; deep < end; deep += 32) {
    std::vector<double> terms{sum};
    for (int64_t d = deep; d < std::min(deep + 32, end); ++d)
      terms.push_back(a.values[static_cast<size_t>(row * a.depth + d)] *
                      b.values[static_cast<size_t>(col * b.depth + d)]);
    int exponent = -1000;
    for (const double term : terms) {
      if (term != 0) exponent = std::max(exponent, std::ilogb(term));
    }
    sum = 0;
    for (const double term : terms)
      sum += std::ldexp(std::trunc(std::ldexp(term, 13 - exponent)), exponent - 13);
  }
  return sum;
}

QuantizedOperand normal_operand(const ScaledOperand& operand, int64_t count, int64_t depth, unsigned seed,
                                float scale = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> stored(static_cast<size_t>(count * depth));
  for (float& value : stored) value = normal(engine);
  auto made = testing::quantized_operand(operand, stored, count, depth);
  if (scale > 0) {
    std::memcpy(made.result.scales.data(), &scale, sizeof scale);
    made.decode();
  }
  return made;
}

TEST(HopperSums, AreTheDefinition) {
  constexpr int64_t kRows = 19, kCols = 18, kDepth = 301;
  // Scales of one, so that values are codes.
  const auto a = normal_operand({ScaleRule::tensor(Format::kE4M3), true}, kRows, kDepth, 1, 1.0f);
  const auto b = normal_operand({ScaleRule::tensor(Format::kE5M2)}, kCols, kDepth, 2, 1.0f);
  const std::vector<float> whole = multiplied(a, b, false, {.sums = PartialSums::kHopper});
  const std::vector<float> promoted = multiplied(a, b, false, {.sums = PartialSums::kHopperPromoted});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) {
      const auto at = static_cast<size_t>(i * kCols + j);
      ASSERT_EQ(whole[at], hopper_sum(a, b, i, j, 0, kDepth)) << i << ' ' << j;
      float sum = 0;
      for (int64_t deep = 0; deep < kDepth; deep += 128)
        sum += static_cast<float>(hopper_sum(a, b, i, j, deep, std::min(deep + 128, kDepth)));
      ASSERT_EQ(promoted[at], sum) << i << ' ' << j;
    }
  }
}

// DeepSeek-V3, section 3.3.2: about 2 % at most for K = 4096 of random values.
TEST(HopperSums, ErrAsMuchAsPublished) {
  constexpr int64_t kRows = 64, kCols = 64, kDepth = 4096;
  const auto error_of = [&](const QuantizedOperand& a, const QuantizedOperand& b, PartialSums sums) {
    const std::vector<float> c = multiplied(a, b, false, {.sums = sums});
    const auto [wanted, sizes] = testing::product_of(a, b);
    double most = 0, square = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      most = std::max(most, std::abs(double{c[i]} - wanted[i]));
      square += wanted[i] * wanted[i];
    }
    return most / std::sqrt(square / static_cast<double>(c.size()));
  };
  const ScaledOperand tensor{ScaleRule::tensor(Format::kE4M3)};
  const auto a = normal_operand(tensor, kRows, kDepth, 1), b = normal_operand(tensor, kCols, kDepth, 2);
  const double whole = error_of(a, b, PartialSums::kHopper),
               promoted = error_of(a, b, PartialSums::kHopperPromoted);
  RecordProperty("whole", std::to_string(whole));
  RecordProperty("promoted", std::to_string(promoted));
  EXPECT_LT(whole, 0.025);
  EXPECT_GT(whole, 0.002);
  EXPECT_LT(promoted, whole);
  const auto rows = normal_operand({ScaleRule::block_row(Format::kE4M3)}, kRows, kDepth, 3),
             squares = normal_operand({ScaleRule::block_square(Format::kE4M3)}, kCols, kDepth, 4);
  EXPECT_EQ(error_of(rows, squares, PartialSums::kHopper),
            error_of(rows, squares, PartialSums::kHopperPromoted));
}

TEST(HopperSums, HaveTheSameBitsForAnyThreadsAndPassNanOn) {
  constexpr int64_t kRows = 33, kCols = 17, kDepth = 150;
  std::vector<float> stored = quantize::golden_matrix({1, 2}, kRows, kDepth, false);
  stored[4 * kDepth + 5] = kNan;
  const auto a = testing::quantized_operand({ScaleRule::block_row(Format::kE4M3)}, stored, kRows, kDepth);
  const auto b = testing::hard_operand({ScaleRule::tensor(Format::kE5M2), true}, kCols, kDepth, 3);
  std::vector<std::vector<uint32_t>> all;
  for (const int threads : {1, 2, 3}) {
    const auto c = multiplied(a, b, false, {.sums = PartialSums::kHopper, .threads = threads});
    EXPECT_TRUE(std::isnan(c[4 * kCols + 3]) && !std::isnan(c[3]));
    expect_product(c, a, b, 0x1p-10);
    all.emplace_back();
    for (const float value : c) all.back().push_back(std::bit_cast<uint32_t>(value));
  }
  EXPECT_EQ(all[1], all[0]);
  EXPECT_EQ(all[2], all[0]);
}

}  // namespace
}  // namespace strata::cpu
