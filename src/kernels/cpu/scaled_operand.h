// An operand of a matmul in codes and scales (quantize/quantizer.h), decoded into the panels of the in-house GEMMs.
// Internal to scaled_gemm and scaled_experts.
//
// Panels hold code · fold, sums are multiplied with an edge factor: fold · edge is the element's scale. Which part goes
// where:
//   scales                                  fold, exact in bf16           edge factor
//   constant along the depth, or along 128  1                             the scale
//   e8m0 and other powers of two that vary  2^(s - E)                     2^E, E the greatest exponent of a row or
//     from one depth to the next or faster                                column of the result, within ±60
//   e4m3 (nvfp4)                            the block's scale             the tensor's scale, or the row's
// Exceptions: of a scale outside 2^±60, the power of two that is too much belongs to the fold, so that the product of two
// edge factors is a normal number; infinity and NaN do too, so that zeros times them are NaN. An element of an MX row
// whose scale is less than 2^-100 of the row's greatest may be flushed to zero.
#pragma once

#include <cstdint>

#include "quantize/quantizer.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// Codes and scales as quantize() writes them: layout_of(rule, …).
struct ScaledOperand {
  quantize::ScaleRule rule;
  // Stored [depth, count], blocks of the rule in that matrix; otherwise [count, depth].
  bool depth_first = false;
};

// One operand's memory.
struct ScaledMatrix {
  const void* codes = nullptr;
  const void* scales = nullptr;
  const float* greatest = nullptr;  // as for quantize::dequantize()
};

namespace detail {

// Depth from one change of edge factors to the next, where they change.
inline constexpr int64_t kEdgeDepth = 128;

enum class Fold : uint8_t { kNothing, kPower, kBlock };

// An operand of known size: data, made from sizes.
struct CodedOperand {
  CodedOperand(const ScaledOperand& operand, int64_t count, int64_t depth);

  ScaledOperand operand;
  int64_t count, depth;  // rows or columns of the result, and the length of its sums
  quantize::QuantizedLayout layout;
  Fold fold = Fold::kNothing;
  bool edges_change = false;  // every kEdgeDepth of the depth
  int64_t edge_stride = 0;    // floats from the factors of one depth to the next
  int64_t exponents_at = 0;   // bytes from the start of scratch
  int64_t scratch_bytes = 0;
};

class DecodedOperand {
 public:
  // `scratch`: coded.scratch_bytes, aligned to 64 bytes. prepare() fills it, on all compute threads.
  DecodedOperand(const CodedOperand& coded, const ScaledMatrix& matrix, void* scratch);
  void prepare() const;
  void prepare(int64_t begin, int64_t end) const;  // of these rows or columns only, on the calling thread

  // out[i] = element first + i of a line of the stored matrix, as dequantize() has it. Needs no prepare().
  void values(int64_t line, int64_t first, int64_t n, float* out) const;

  // Edge factors at this depth, by row or column, readable 64 beyond the last.
  const float* edges(int64_t deep) const {
    return edges_ + (coded_.edges_change ? deep / kEdgeDepth * coded_.edge_stride : 0);
  }

  // Packs as pack_panels() and pack_pairs() do. Line i of the stored matrix, an item or with depth_first a depth, is line
  // lines[i]; nullptr: line i itself.
  void pack(float* to, int64_t panel, const int32_t* lines, int64_t begin, int64_t count, int64_t deep,
            int64_t depth) const;
  void pack(BF16* to, int64_t panel, const int32_t* lines, int64_t begin, int64_t count, int64_t deep,
            int64_t depth) const;

 private:
  template <typename T>
  void pack_as(T* to, int64_t panel, const int32_t* lines, int64_t begin, int64_t count, int64_t deep,
               int64_t depth) const;
  template <typename T, typename Factor>
  void decode_with(int64_t line, int64_t first, int64_t n, T* out, const Factor& factor_at) const;
  template <typename T>
  void decode(int64_t line, int64_t first, int64_t n, T* out) const;
  void prefetch(int64_t line, int64_t first, int64_t n) const;
  float fold_of(int64_t line, int64_t position) const;
  float fold_of_row(int64_t line) const;
  uint32_t stored_scale(int64_t line, int64_t position) const;
  float scale(int64_t line, int64_t position) const;
  int exponent_of_scale(int64_t line, int64_t position) const;
  void prepare_item(int64_t item) const;

  const CodedOperand& coded_;
  const ScaledMatrix& matrix_;
  float* edges_;          // [steps, edge_stride]
  int32_t* exponents_;    // [count], with Fold::kPower
  float block_fold_ = 1;  // of all blocks' scales, with Fold::kBlock
  float block_edge_ = 1;
};

}  // namespace detail
}  // namespace strata::cpu
