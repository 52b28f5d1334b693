#include "quantize/scale_rule.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "quantize/scale_vectors.h"

namespace strata::quantize {
namespace {

constexpr int64_t kBlockExtent = 128, kMxExtent = 32, kNvfp4Extent = 16;

constexpr float kLeastOfTensor = 1e-12f;  // torchao/float8/float8_utils.py, EPS
constexpr float kLeastOfBlock = 1e-4f;    // DeepGEMM, per_token_cast_to_fp8
constexpr float kLeastNvfp4Tensor = 0x1p-121f;
constexpr float kLeastNvfp4Block = 0x1p-6f;  // torchao/prototype/mx_formats/nvfp4_tensor.py, E4M3_EPS

// max(a, b) in which NaN of a wins.
float at_least(float a, float b) {
  return a < b ? b : a;
}

constexpr uint32_t kExponent = 0x7f800000u;
uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
// As stored: one NaN, whichever a processor makes.
uint32_t stored_bits(float scale) {
  return std::isnan(scale) ? 0x7fc00000u : bits_of(scale);
}
bool is_finite(float value) {
  return (bits_of(value) & kExponent) != kExponent;
}

// Positive normal numbers, rounded to powers of two; others unchanged.
float power_below(float value) {
  return is_finite(value) ? std::bit_cast<float>(bits_of(value) & kExponent) : value;
}
float e8m0_value(uint32_t code) {
  return decode(Format::kE8M0, code);
}

bool is_fp8(Format format) {
  return spec_of(format).bits() == 8 && format != Format::kE8M0;
}

}  // namespace

ScaleRule ScaleRule::of_fp8(Kind kind, Format format, BlockShape block, PowerOfTwo power_of_two) {
  STRATA_CHECK(is_fp8(format), "{} is not an fp8 format", spec_of(format).name);
  ScaleRule rule(kind, format, block, ScaleType::kF32);
  rule.power_of_two_ = power_of_two;
  return rule;
}
ScaleRule ScaleRule::tensor(Format format) {
  return of_fp8(Kind::kTensor, format, {kWhole, kWhole}, PowerOfTwo::kNo);
}
ScaleRule ScaleRule::delayed(Format format) {
  return of_fp8(Kind::kDelayed, format, {kWhole, kWhole}, PowerOfTwo::kNo);
}
ScaleRule ScaleRule::row(Format format, PowerOfTwo power_of_two) {
  return of_fp8(Kind::kRow, format, {1, kWhole}, power_of_two);
}
ScaleRule ScaleRule::block_row(Format format, PowerOfTwo power_of_two) {
  return of_fp8(Kind::kBlock, format, {1, kBlockExtent}, power_of_two);
}
ScaleRule ScaleRule::block_square(Format format, PowerOfTwo power_of_two) {
  return of_fp8(Kind::kBlock, format, {kBlockExtent, kBlockExtent}, power_of_two);
}
ScaleRule ScaleRule::mx(Format format, MxScale mode) {
  const bool is_mx = format == Format::kE4M3 || format == Format::kE5M2 || format == Format::kE2M3 ||
                     format == Format::kE3M2 || format == Format::kE2M1;
  STRATA_CHECK(is_mx, "{} is not an MX format", spec_of(format).name);
  ScaleRule rule(Kind::kMx, format, {1, kMxExtent}, ScaleType::kE8M0);
  rule.mode_ = mode;
  return rule;
}
ScaleRule ScaleRule::nvfp4_row() {
  return {Kind::kNvfp4, Format::kE2M1, {1, kNvfp4Extent}, ScaleType::kE4M3};
}
ScaleRule ScaleRule::nvfp4_square() {
  return {Kind::kNvfp4, Format::kE2M1, {kNvfp4Extent, kNvfp4Extent}, ScaleType::kE4M3};
}
ScaleRule ScaleRule::nvfp4_by_row() {
  ScaleRule rule = nvfp4_row();
  rule.by_row_ = true;
  return rule;
}

ScaleRule::Needs ScaleRule::needs() const {
  switch (kind_) {
    case Kind::kTensor:
    case Kind::kDelayed:
      return Needs::kTensor;
    case Kind::kNvfp4:
      return by_row_ ? Needs::kRows : Needs::kTensor;
    case Kind::kRow:
      return Needs::kRows;
    case Kind::kBlock:
    case Kind::kMx:
      break;
  }
  return Needs::kNothing;
}

ScaleRule::Scale ScaleRule::mx_scale_of(float greatest) const {
  const FormatSpec spec = spec_of(format_);
  const int32_t largest_exponent = static_cast<int32_t>(spec.greatest >> spec.mantissa_bits) - spec.bias;
  // torchao's other modes divide by 2^128, which is infinity: other values become zeros.
  if (std::isnan(greatest)) return {255, 0.0f};
  uint32_t bits = bits_of(greatest);
  if (mode_ == MxScale::kEven) bits += 1u << (22 - spec.mantissa_bits);
  auto exponent = static_cast<int32_t>(bits >> 23) - 127;
  if (mode_ == MxScale::kCeil && (bits & 0x7fffffu) != 0) ++exponent;
  const int32_t biased = std::max(exponent - largest_exponent, -127) + 127;
  const auto code = static_cast<uint32_t>(biased);
  return {code, 1.0f / std::max(e8m0_value(code), 0x1p-126f)};
}

void ScaleRule::scales_of(const float* greatest, int64_t n, float tensor_greatest, uint32_t* stored,
                          float* applied) const {
  const float largest = largest_of(format_);
  const auto each = [&](const auto& scale_of_one) {
    for (int64_t i = 0; i < n; ++i) {
      const Scale scale = scale_of_one(greatest[i]);
      stored[i] = scale.stored;
      applied[i] = scale.applied;
    }
  };
  switch (kind_) {
    case Kind::kTensor:
    case Kind::kRow:
      return each([&](float most) -> Scale {
        // torchao divides in fp64 and rounds to fp32: the same number.
        float factor = largest / at_least(most, kLeastOfTensor);
        if (power_of_two_ == PowerOfTwo::kYes) factor = power_below(factor);
        return {stored_bits(1 / factor), factor};
      });
    case Kind::kDelayed:
      return each([&](float most) -> Scale {
        const float factor = most == 0 ? 1 : std::min(largest / most, std::numeric_limits<float>::max());
        return {stored_bits(1 / factor), factor};
      });
    case Kind::kBlock:
      return tiles::block_scales(greatest, n, kLeastOfBlock, largest, power_of_two_ == PowerOfTwo::kYes,
                                 stored, applied);
    case Kind::kMx:
      if (mode_ == MxScale::kRoundUp) return tiles::mx_scales_up(greatest, n, largest, stored, applied);
      return each([&](float most) { return mx_scale_of(most); });
    case Kind::kNvfp4:
      return tiles::nvfp4_scales(greatest, n, largest, nvfp4_tensor_scale(tensor_greatest), kLeastNvfp4Block,
                                 stored, applied);
  }
}

void ScaleRule::scales_of_rows(const float* greatest, const float* row_greatest, int64_t n, uint32_t* stored,
                               float* applied) const {
  STRATA_CHECK(by_row_, "{} has no scales of rows", str());
  const float largest = largest_of(format_);
  constexpr int64_t kRun = 256;
  uint8_t codes[kRun];
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t count = std::min(kRun, n - begin);
    float* const to = applied + begin;
    for (int64_t i = 0; i < count; ++i) {
      const float of_row = nvfp4_tensor_scale(row_greatest[begin + i]);
      to[i] = at_least(greatest[begin + i] / largest / of_row, kLeastNvfp4Block);
    }
    encode(Format::kE4M3, to, count, codes);
    for (int64_t i = 0; i < count; ++i) {
      stored[begin + i] = codes[i];
      to[i] = 1 / nvfp4_tensor_scale(row_greatest[begin + i]) / decode(Format::kE4M3, codes[i]);
    }
  }
}

ScaleRule::Scale ScaleRule::scale_of(float greatest, float tensor_greatest) const {
  Scale scale{};
  scales_of(&greatest, 1, tensor_greatest, &scale.stored, &scale.applied);
  return scale;
}

float ScaleRule::value_of(uint32_t stored, float tensor_greatest) const {
  switch (type_) {
    case ScaleType::kF32:
      return std::bit_cast<float>(stored);
    case ScaleType::kE8M0:
      return e8m0_value(stored);
    case ScaleType::kE4M3:
      return nvfp4_tensor_scale(tensor_greatest) * decode(Format::kE4M3, stored);
  }
  throw InternalError("unknown type of scales");
}

std::string ScaleRule::str() const {
  static constexpr std::string_view kKinds[] = {"tensor", "delayed", "row", "block", "mx", "nvfp4"};
  static constexpr std::string_view kModes[] = {"floor", "", "ceil", "even"};
  const auto extent = [](int64_t n) { return n == kWhole ? std::string("all") : std::to_string(n); };
  std::string text = fmt::format("{} {}x{} {}", spec_of(format_).name, extent(block_.rows),
                                 extent(block_.columns), kKinds[static_cast<size_t>(kind_)]);
  if (power_of_two_ == PowerOfTwo::kYes) text += " 2^n";
  if (by_row_) text += " by row";
  if (kind_ == Kind::kMx && mode_ != MxScale::kRoundUp)
    text += fmt::format(" {}", kModes[static_cast<size_t>(mode_)]);
  return text;
}

float nvfp4_tensor_scale(float tensor_greatest) {
  return at_least(tensor_greatest / (largest_of(Format::kE4M3) * largest_of(Format::kE2M1)),
                  kLeastNvfp4Tensor);
}

QuantizedLayout layout_of(const ScaleRule& rule, int64_t rows, int64_t columns) {
  const BlockShape block = rule.block();
  const auto blocks = [](int64_t n, int64_t extent) {
    return extent == kWhole ? std::min<int64_t>(n, 1) : (n + extent - 1) / extent;
  };
  QuantizedLayout layout{.rows = rows,
                         .columns = columns,
                         .code_row_bytes = code_bytes(rule.format(), columns),
                         .scale_rows = blocks(rows, block.rows),
                         .scale_columns = blocks(columns, block.columns),
                         .scale_type = rule.scale_type()};
  if (rule.needs() == ScaleRule::Needs::kTensor) layout.greatest = 1;
  if (rule.needs() == ScaleRule::Needs::kRows) layout.greatest = rows;
  return layout;
}

}  // namespace strata::quantize
