// Which elements of a matrix share a scale, and how the scale follows from the greatest magnitude among them, as the
// publisher of each recipe computes it.
//
// A scale is what codes are multiplied with to get values back. All arithmetic is fp32 with subnormal numbers. A block
// that contains NaN or infinity decodes to NaN where its formula has no better answer; nothing is hidden.
//
//   rule      scale of a block with greatest magnitude a                       values before rounding
//   tensor    1 / m with m = largest / max(a, 1e-12)                           x · m       torchao 0.18, float8 casts
//   delayed   1 / m with m = min(largest / a, greatest float), a of a history  x · m       Transformer Engine
//   row       as tensor; torchao's recipes round m down to a power of two      x · m       torchao 0.18
//   block     s = max(a, 1e-4) / largest, as an option rounded up to 2^n       x / s       DeepSeek-V3, DeepGEMM
//   mx        2^n, by MxScale                                                  x / s       torchao 0.18, to_mx
//   nvfp4     e4m3(a / 6 / t), at least 2^-6; times the tensor's t             x · (1/t/s) torchao 0.18
//
// delayed takes a from earlier steps (delayed.h), so values beyond it saturate; without any, a = 0, m is 1.
// nvfp4's t = max(A / (448 · 6), 2^-121) with the tensor's greatest magnitude A: below that torchao's reciprocals
// overflow (and a tensor of zeros becomes NaN); here such tensors lose precision instead. nvfp4_by_row takes A of the
// row, so that no scale depends on other rows.
// mx in the mode kRoundUp leaves blocks unscaled whose scale would be 2^-127 (as Transformer Engine does); the other
// modes divide those by 2^-126, as torchao does.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "quantize/formats.h"

namespace strata::quantize {

enum class PowerOfTwo : bool { kNo, kYes };

// How MX formats choose the exponent (OCP Microscaling Formats 1.0, section 6.3, and later practice); the names are
// torchao's ScaleCalculationMode. e is the exponent of a's leading bit, E that of the format's largest value.
enum class MxScale : uint8_t {
  kFloor,    // e - E: the specification's; values above the largest saturate
  kRoundUp,  // RCEIL: the least power that is at least a / largest; the default of Transformer Engine's MXFP8
  kCeil,     // e - E, plus one unless a is a power of two
  kEven,     // e - E after rounding a to the format's mantissa
};

// The extent of a block that is as long as the matrix.
inline constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();

// Elements that share a scale.
struct BlockShape {
  int64_t rows = 1, columns = 1;
  bool operator==(const BlockShape&) const = default;
};

enum class ScaleType : uint8_t { kF32, kE8M0, kE4M3 };
constexpr int64_t size_of(ScaleType type) {
  return type == ScaleType::kF32 ? 4 : 1;
}
constexpr DType dtype_of(ScaleType type) {
  return type == ScaleType::kF32 ? DType::kF32 : type == ScaleType::kE8M0 ? DType::kE8M0 : DType::kE4M3;
}

class ScaleRule {
 public:
  // fp8 formats only for the first five.
  static ScaleRule tensor(Format format);
  static ScaleRule delayed(Format format);
  static ScaleRule row(Format format, PowerOfTwo power_of_two = PowerOfTwo::kYes);
  static ScaleRule block_row(Format format, PowerOfTwo power_of_two = PowerOfTwo::kNo);     // 1 x 128
  static ScaleRule block_square(Format format, PowerOfTwo power_of_two = PowerOfTwo::kNo);  // 128 x 128
  // 1 x 32 with e8m0 scales: e4m3 (MXFP8), e5m2, e2m3, e3m2, e2m1 (MXFP4).
  static ScaleRule mx(Format format, MxScale mode = MxScale::kRoundUp);
  static ScaleRule nvfp4_row();     // 1 x 16
  static ScaleRule nvfp4_square();  // 16 x 16, for weights
  static ScaleRule nvfp4_by_row();  // 1 x 16, with t of each row

  Format format() const { return format_; }
  BlockShape block() const { return block_; }
  ScaleType scale_type() const { return type_; }

  // The rule's needs beyond a block itself: nothing, the greatest magnitude of the whole tensor, or that of
  // each row. quantize() takes it as given, so that ranks can agree on it and history can provide it.
  enum class Needs : uint8_t { kNothing, kTensor, kRows };
  Needs needs() const;
  // Blocks have scales, and each row has one in fp32 too.
  bool is_nvfp4_by_row() const { return by_row_; }
  // It needs no value of this tensor, but those of its predecessors in earlier steps.
  bool is_delayed() const { return kind_ == Kind::kDelayed; }

  // The scale of one block: as stored, and what values are multiplied with or (`divides`) divided by.
  struct Scale {
    uint32_t stored;  // the bits of a float, or a code
    float applied;
  };
  // Every finite scale is a power of two.
  bool powers_of_two() const { return type_ == ScaleType::kE8M0 || power_of_two_ == PowerOfTwo::kYes; }
  bool divides() const { return kind_ == Kind::kBlock && power_of_two_ == PowerOfTwo::kNo; }
  // `greatest`: of the block, NaN if it contains NaN. `tensor_greatest`: of the tensor (or row), for nvfp4 only.
  Scale scale_of(float greatest, float tensor_greatest = 0) const;
  // The same of n blocks.
  void scales_of(const float* greatest, int64_t n, float tensor_greatest, uint32_t* stored,
                 float* applied) const;
  // nvfp4_by_row: of n blocks, each of a row with its own greatest magnitude.
  void scales_of_rows(const float* greatest, const float* row_greatest, int64_t n, uint32_t* stored,
                      float* applied) const;
  // No value of a block with a finite greatest magnitude is scaled to more than what rounds to the largest.
  bool fits() const { return kind_ == Kind::kBlock || (kind_ == Kind::kMx && mode_ == MxScale::kRoundUp); }

  // The number that a stored scale stands for.
  float value_of(uint32_t stored, float tensor_greatest = 0) const;

  // "e4m3 1x128 block", by which rules that differ differ: for people and for keys.
  std::string str() const;
  bool operator==(const ScaleRule&) const = default;

 private:
  enum class Kind : uint8_t { kTensor, kDelayed, kRow, kBlock, kMx, kNvfp4 };
  ScaleRule(Kind kind, Format format, BlockShape block, ScaleType type)
      : kind_(kind), format_(format), block_(block), type_(type) {}
  static ScaleRule of_fp8(Kind kind, Format format, BlockShape block, PowerOfTwo power_of_two);
  Scale mx_scale_of(float greatest) const;

  Kind kind_;
  Format format_;
  BlockShape block_;
  ScaleType type_;
  PowerOfTwo power_of_two_ = PowerOfTwo::kNo;
  MxScale mode_ = MxScale::kRoundUp;
  bool by_row_ = false;  // nvfp4
};

// nvfp4's scale of the tensor, to be written into files.
float nvfp4_tensor_scale(float tensor_greatest);

// Shapes and sizes of the codes and scales of a matrix [rows, columns]: both row-major without gaps, except that rows
// of e2m1 begin at a byte.
struct QuantizedLayout {
  int64_t rows = 0, columns = 0;
  int64_t code_row_bytes = 0;
  int64_t scale_rows = 0, scale_columns = 0;
  int64_t greatest = 0;  // numbers that the rule needs: 0, 1 or `rows`
  ScaleType scale_type = ScaleType::kF32;

  int64_t code_bytes() const { return rows * code_row_bytes; }
  int64_t scale_bytes() const { return scale_rows * scale_columns * size_of(scale_type); }
};
QuantizedLayout layout_of(const ScaleRule& rule, int64_t rows, int64_t columns);

}  // namespace strata::quantize
