#include "kernels/cpu/scaled_operand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/gemm_block.h"
#include "kernels/cpu/parts.h"
#include "quantize/subnormals.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {
namespace {

using quantize::Format;
using quantize::kWhole;

constexpr int64_t kMostPanel = 64;  // a multiple of every panel's width
constexpr int kMostExponent = 60;
constexpr int kNoExponent = -1000;   // below that of any scale
constexpr int64_t kLeastBlock = 16;  // codes that share a scale, at least
constexpr int64_t kLinesAhead = 8;
constexpr int64_t kDecoded = 8192;  // values of a panel that are decoded together, in the L1 cache

struct Split {
  float edge, fold;  // the number is edge · fold
};
Split split(float scale) {
  if (!std::isfinite(scale)) return {1, scale};
  if (scale == 0) return {0, 1};
  const int exponent = std::ilogb(scale), kept = std::clamp(exponent, -kMostExponent, kMostExponent);
  if (kept == exponent) return {scale, 1};
  return {std::ldexp(scale, kept - exponent), std::ldexp(1.0f, exponent - kept)};
}

// How much of the depth shares a scale.
int64_t depth_extent(const ScaledOperand& operand) {
  return operand.depth_first ? operand.rule.block().rows : operand.rule.block().columns;
}

Fold fold_of(const ScaledOperand& operand) {
  STRATA_CHECK(!operand.rule.is_nvfp4_by_row() || !operand.depth_first,
               "[scaled_gemm] scales of rows differ from one depth to the next");
  if (operand.rule.scale_type() == quantize::ScaleType::kE4M3) return Fold::kBlock;
  if (operand.rule.scale_type() == quantize::ScaleType::kE8M0) return Fold::kPower;
  if (depth_extent(operand) >= kEdgeDepth) return Fold::kNothing;
  STRATA_CHECK(
      operand.rule.powers_of_two(),
      "[scaled_gemm] scales of {} differ from one depth to the next: expected powers of two, or a copy "
      "of the operand with blocks along the depth",
      quantize::spec_of(operand.rule.format()).name);
  return Fold::kPower;
}

}  // namespace

CodedOperand::CodedOperand(const ScaledOperand& of, int64_t count_, int64_t depth_)
    : operand(of),
      count(count_),
      depth(depth_),
      layout(of.depth_first ? layout_of(of.rule, depth_, count_) : layout_of(of.rule, count_, depth_)),
      fold(fold_of(of)),
      edges_change(fold == Fold::kNothing && depth_extent(of) != kWhole),
      edge_stride(align_up(count_, kMostPanel) + kMostPanel) {
  STRATA_CHECK(!edges_change || depth_extent(of) == kEdgeDepth, "[scaled_gemm] blocks of {} along the depth",
               depth_extent(of));
  const int64_t steps = edges_change ? std::max<int64_t>(1, divide_up(depth, kEdgeDepth)) : 1;
  exponents_at = steps * edge_stride * int64_t{sizeof(float)};
  scratch_bytes = exponents_at;
  if (fold == Fold::kPower) scratch_bytes += align_up(count * int64_t{sizeof(int32_t)}, kBufferAlignment);
}

DecodedOperand::DecodedOperand(const CodedOperand& coded, const ScaledMatrix& matrix, void* scratch)
    : coded_(coded),
      matrix_(matrix),
      edges_(static_cast<float*>(scratch)),
      exponents_(reinterpret_cast<int32_t*>(static_cast<std::byte*>(scratch) + coded.exponents_at)) {
  if (coded.fold != Fold::kBlock) return;
  STRATA_CHECK(matrix.greatest != nullptr || coded.layout.greatest == 0,
               "[scaled_gemm] nvfp4 needs the tensor's greatest magnitude");
  if (coded.operand.rule.is_nvfp4_by_row()) return;
  const quantize::KeepSubnormals keep;
  const Split of_tensor = split(quantize::nvfp4_tensor_scale(*matrix.greatest));
  block_fold_ = of_tensor.fold;
  block_edge_ = of_tensor.edge;
}

uint32_t DecodedOperand::stored_scale(int64_t line, int64_t position) const {
  const auto [rows, columns] = coded_.operand.rule.block();
  const int64_t row = rows == kWhole ? 0 : rows == 1 ? line : line / rows;
  const int64_t at = row * coded_.layout.scale_columns + (columns == kWhole ? 0
                                                          : columns == 1    ? position
                                                                            : position / columns);
  if (coded_.layout.scale_type != quantize::ScaleType::kF32)
    return static_cast<const uint8_t*>(matrix_.scales)[at];
  uint32_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(matrix_.scales) + at * 4, sizeof bits);
  return bits;
}
float DecodedOperand::scale(int64_t line, int64_t position) const {
  return coded_.operand.rule.value_of(stored_scale(line, position));
}
// Of a power of two; kNoExponent for infinity and NaN.
int DecodedOperand::exponent_of_scale(int64_t line, int64_t position) const {
  const uint32_t stored = stored_scale(line, position);
  if (coded_.layout.scale_type == quantize::ScaleType::kE8M0)
    return stored == 255 ? kNoExponent : static_cast<int>(stored) - 127;
  const float scale = std::bit_cast<float>(stored);
  return std::isfinite(scale) && scale != 0 ? std::ilogb(scale) : kNoExponent;
}

// The edge factors of one row or column of the result.
void DecodedOperand::prepare_item(int64_t item) const {
  const bool depth_first = coded_.operand.depth_first;
  const auto line = [&](int64_t deep) { return depth_first ? deep : item; };
  const auto position = [&](int64_t deep) { return depth_first ? item : deep; };
  switch (coded_.fold) {
    case Fold::kBlock:
      edges_[item] = coded_.operand.rule.is_nvfp4_by_row()
                         ? split(quantize::nvfp4_tensor_scale(matrix_.greatest[item])).edge
                         : block_edge_;
      return;
    case Fold::kNothing:
      for (int64_t deep = 0, step = 0; deep < coded_.depth; deep += kEdgeDepth, ++step) {
        edges_[step * coded_.edge_stride + item] = split(scale(line(deep), position(deep))).edge;
        if (!coded_.edges_change) return;
      }
      return;
    case Fold::kPower: {
      int most = kNoExponent;
      const int64_t extent = depth_extent(coded_.operand);
      for (int64_t deep = 0; deep < coded_.depth; deep += extent)
        most = std::max(most, exponent_of_scale(line(deep), position(deep)));
      most = std::clamp(most, -kMostExponent, kMostExponent);
      exponents_[item] = most;
      edges_[item] = std::ldexp(1.0f, most);
      return;
    }
  }
}

void DecodedOperand::prepare(int64_t begin, int64_t end) const {
  const quantize::KeepSubnormals keep;
  const int64_t steps = coded_.exponents_at / int64_t{sizeof(float)} / coded_.edge_stride;
  if (end == coded_.count) {
    for (int64_t step = 0; step < steps; ++step)
      std::fill(edges_ + step * coded_.edge_stride + end, edges_ + (step + 1) * coded_.edge_stride, 0.0f);
  }
  for (int64_t item = begin; item < end; ++item) {
    edges_[item] = 0;  // without depth no scale exists, and sums are zeros
    if (coded_.depth > 0) prepare_item(item);
  }
}

void DecodedOperand::prepare() const {
  // Neighbors read the same scale: cheap, compared with the matmul.
  constexpr int64_t kItems = 64;
  parallel_ranges(std::max<int64_t>(1, coded_.count), kItems,
                  [&](int64_t begin, int64_t end) { prepare(begin, std::min(end, coded_.count)); });
}

void DecodedOperand::values(int64_t line, int64_t first, int64_t n, float* out) const {
  const quantize::KeepSubnormals keep;
  const quantize::ScaleRule& rule = coded_.operand.rule;
  const float of_tensor =
      matrix_.greatest != nullptr ? matrix_.greatest[rule.is_nvfp4_by_row() ? line : 0] : 0;
  decode_with(line, first, n, out,
              [&](int64_t at) { return rule.value_of(stored_scale(line, at), of_tensor); });
}

// The fold of an element of the stored matrix. Only integers and exact multiplications: threads flush subnormal numbers.
float DecodedOperand::fold_of(int64_t line, int64_t position) const {
  switch (coded_.fold) {
    case Fold::kNothing: {
      const uint32_t stored = stored_scale(line, position), magnitude = stored & 0x7fffffffu;
      const auto exponent = static_cast<int>(magnitude >> 23) - 127;
      if (exponent >= -kMostExponent && exponent <= kMostExponent) [[likely]]
        return 1;
      const quantize::KeepSubnormals keep;
      return split(std::bit_cast<float>(stored)).fold;
    }
    case Fold::kPower: {
      const int exponent = exponent_of_scale(line, position);
      if (exponent == kNoExponent) return scale(line, position);
      const int32_t of_item = exponents_[coded_.operand.depth_first ? position : line];
      // Below 255: the item's exponent is its greatest one, up to 60.
      const int biased = exponent - of_item + 127;
      return biased <= 0 ? 0.0f : std::bit_cast<float>(static_cast<uint32_t>(biased) << 23);
    }
    case Fold::kBlock:
      return quantize::decode(Format::kE4M3, stored_scale(line, position)) * fold_of_row(line);
  }
  return 1;
}

// With Fold::kBlock, what a row's or the tensor's scale leaves to the folds of its blocks.
float DecodedOperand::fold_of_row(int64_t line) const {
  if (!coded_.operand.rule.is_nvfp4_by_row()) return block_fold_;
  const float scale = quantize::nvfp4_tensor_scale(matrix_.greatest[line]);
  const auto exponent = static_cast<int>(std::bit_cast<uint32_t>(scale) >> 23) - 127;
  if (exponent >= -kMostExponent && exponent <= kMostExponent) [[likely]]
    return 1;
  return split(scale).fold;
}

// Runs of codes are too short and too far apart for the processor to guess the next one.
void DecodedOperand::prefetch(int64_t line, int64_t first, int64_t n) const {
  const Format format = coded_.operand.rule.format();
  const auto* const codes = static_cast<const std::byte*>(matrix_.codes) +
                            line * coded_.layout.code_row_bytes + quantize::code_bytes(format, first);
  const int64_t bytes = quantize::code_bytes(format, n);
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(codes + at, 0, 3);
}

// Part of a panel that will be written: packing scatters over it, which the processor does not foresee either.
template <typename T>
void prefetch_panel(const T* at, int64_t n) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(at);
  for (int64_t i = 0; i < n * int64_t{sizeof(T)}; i += 64) __builtin_prefetch(bytes + i, 1, 3);
}

// out[i] = code · fold of element first + i of a line.
template <typename T>
void DecodedOperand::decode(int64_t line, int64_t first, int64_t n, T* out) const {
  decode_with(line, first, n, out, [&](int64_t at) { return fold_of(line, at); });
}

// out[i] = code · factor_at(first + i), a function of the block.
template <typename T, typename Factor>
void DecodedOperand::decode_with(int64_t line, int64_t first, int64_t n, T* out,
                                 const Factor& factor_at) const {
  const Format format = coded_.operand.rule.format();
  const auto* const codes = static_cast<const uint8_t*>(matrix_.codes) + line * coded_.layout.code_row_bytes;
  const int64_t columns = coded_.operand.rule.block().columns, end = first + n;
  quantize::BlockFactors blocks{.width = columns == kWhole ? end : columns,
                                .first = columns == kWhole ? 0 : first % columns};
  float folds[kDecoded / kLeastBlock + 2];
  bool folded = false;
  int64_t count = 0;
  for (int64_t at = first; at < end; at += blocks.width - (count == 1 ? blocks.first : 0)) {
    folds[count] = factor_at(at);
    folded = folded || folds[count] != 1;  // NaN too
    ++count;
  }
  if (folded) blocks.factors = folds;
  if (format == Format::kE2M1 && first % 2 != 0) {  // the second half of a byte
    *out++ = T(quantize::decode(format, codes[first / 2] >> 4) * folds[0]);
    ++first;
    --n;
    if (++blocks.first == blocks.width) {
      blocks.first = 0;
      if (folded) ++blocks.factors;
    }
  }
  quantize::decode(format, codes + quantize::code_bytes(format, first), n, blocks, out);
}

namespace {
int64_t values_of_panel(const float*, int64_t depth, int64_t panel) {
  return depth * panel;
}
int64_t values_of_panel(const BF16*, int64_t depth, int64_t panel) {
  return panel_values(depth, panel);
}
void pack_view(float* to, int64_t panel, const OperandView& view, int64_t count, int64_t depth) {
  pack_panels(to, panel, view, 0, count, 0, depth);
}
void pack_view(BF16* to, int64_t panel, const OperandView& view, int64_t count, int64_t depth) {
  pack_pairs(to, panel, view, 0, count, 0, depth);
}
}  // namespace

template <typename T>
void DecodedOperand::pack_as(T* to, int64_t panel, const int32_t* lines, int64_t begin, int64_t count,
                             int64_t deep, int64_t depth) const {
  alignas(kBufferAlignment) T buffer[kDecoded];
  const bool depth_first = coded_.operand.depth_first;
  const DType dtype = sizeof(T) == sizeof(float) ? DType::kF32 : DType::kBF16;
  const auto line_of = [&](int64_t at) { return lines != nullptr ? lines[at] : at; };
  // Along lines one panel at a time, as deep as the buffer allows; across them several, for longer runs of a line.
  constexpr int64_t kWide = 128;
  const int64_t group = depth_first ? std::max<int64_t>(1, kWide / panel) * panel : panel;
  const int64_t of_panel = values_of_panel(to, depth, panel);
  for (int64_t i = 0; i < count; i += group) {
    const int64_t items = std::min(group, count - i);
    const int64_t piece = kDecoded / group / 8 * 8;
    for (int64_t d = 0; d < depth; d += piece) {
      const int64_t now = std::min(piece, depth - d);
      if (depth_first) {
        for (int64_t p = 0; p < now; ++p) {
          if (p + kLinesAhead < now) prefetch(line_of(deep + d + p + kLinesAhead), begin + i, items);
          decode(line_of(deep + d + p), begin + i, items, buffer + p * group);
        }
      } else {
        for (int64_t r = 0; r < items; ++r) {
          const int64_t item = begin + i + r;
          if (d + now < depth) {
            prefetch(line_of(item), deep + d + now, std::min(piece, depth - d - now));
          } else if (i + r + group < count) {
            prefetch(line_of(item + group), deep, std::min(piece, depth));
          }
          const int64_t part = now * panel / items;
          prefetch_panel(to + i / panel * of_panel + d * panel + r * part, part);
          decode(line_of(item), deep + d, now, buffer + r * piece);
        }
      }
      for (int64_t r = 0; r < items; r += panel) {
        const OperandView view{.data = depth_first ? buffer + r : buffer + r * piece,
                               .dtype = dtype,
                               .stride = depth_first ? group : piece,
                               .depth_major = depth_first};
        pack_view(to + (i + r) / panel * of_panel + d * panel, panel, view, std::min(panel, items - r), now);
      }
    }
  }
}

void DecodedOperand::pack(float* to, int64_t panel, const int32_t* lines, int64_t begin, int64_t count,
                          int64_t deep, int64_t depth) const {
  pack_as(to, panel, lines, begin, count, deep, depth);
}
void DecodedOperand::pack(BF16* to, int64_t panel, const int32_t* lines, int64_t begin, int64_t count,
                          int64_t deep, int64_t depth) const {
  pack_as(to, panel, lines, begin, count, deep, depth);
}

}  // namespace strata::cpu::detail
