#include "ops/case_codes.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::device {

using namespace op_rows;
using ops::ScaledAttrs;
using quantize::Format;
using quantize::ScaleRule;

namespace {

// rows · columns · depth
struct ProductSize {
  int64_t rows, columns, depth;
};
struct ProductCase {
  std::string name;
  ops::ScaledOperandAttrs first, second;
  ProductSize even;  // a cut in four leaves whole blocks
  int64_t ragged;    // near the sizes of one that no block divides
};
const ScaleRule kBlock = ScaleRule::block_row(Format::kE4M3),
                kSquare = ScaleRule::block_square(Format::kE4M3);
const ScaleRule kMx = ScaleRule::mx(Format::kE4M3), kRow = ScaleRule::row(Format::kE4M3),
                kTensor = ScaleRule::tensor(Format::kE4M3),
                kTensorOfGradient = ScaleRule::tensor(Format::kE5M2);

std::vector<ProductCase> forward_cases() {
  return {{"tensor", {kTensor}, {kTensor}, {16, 8, 8}, 5},
          {"row", {kRow}, {kRow}, {16, 8, 8}, 5},
          {"block", {kBlock}, {kSquare}, {8, 512, 512}, 131},
          {"mx", {kMx}, {kMx}, {16, 8, 128}, 35},
          {"nvfp4", {ScaleRule::nvfp4_row()}, {ScaleRule::nvfp4_square()}, {16, 64, 64}, 18}};
}
std::vector<ProductCase> input_cases() {
  return {{"tensor", {kTensorOfGradient}, {kTensor, true}, {16, 8, 8}, 5},
          {"row", {kRow}, {kRow}, {16, 8, 8}, 5},
          {"row_hp_wgrad", {kRow}, {kTensor}, {16, 8, 8}, 5},
          {"block", {kBlock}, {kSquare, true}, {8, 512, 512}, 131},
          {"mx", {kMx}, {kMx}, {16, 8, 128}, 35},
          {"nvfp4", {ScaleRule::nvfp4_row()}, {ScaleRule::nvfp4_square(), true}, {16, 64, 64}, 18}};
}
std::vector<ProductCase> weight_cases() {
  return {{"tensor", {kTensorOfGradient, true}, {kTensor, true}, {16, 8, 8}, 5},
          {"row", {kRow}, {kRow}, {16, 8, 8}, 5},
          {"block", {kBlock}, {kBlock}, {16, 8, 512}, 131},
          {"mx", {kMx}, {kMx}, {16, 8, 128}, 35},
          {"nvfp4", {ScaleRule::nvfp4_row()}, {ScaleRule::nvfp4_row()}, {16, 8, 64}, 18}};
}

ProductSize size_of(const ProductCase& one, bool ragged) {
  // 4 bits: an even number of codes a row.
  const int64_t step = one.ragged % 2 == 0 ? 2 : 1;
  if (ragged) return {one.ragged, one.ragged + step, one.ragged + 2 * step};
  return one.even;
}

struct Timed {
  int64_t rows, outputs, inputs;
};
constexpr Timed kTimedProducts[] = {
    {kTimedTokens, 1024, 512}, {kTimedTokens, 512, 2048}, {kTimedTokens, 2048, 1024}};

}  // namespace

template <>
void cases<ops::ScaledLinear>(Cases& to) {
  const auto in = [](const ScaledAttrs& attrs, ProductSize s) -> ops::ScaledLinear::In<Sample> {
    const ScaledOperand x = scaled(attrs.first, s.rows, s.depth),
                        w = scaled(attrs.second, s.columns, s.depth);
    return {.x = x.codes,
            .x_scales = x.scales,
            .weight = w.codes,
            .weight_scales = w.scales,
            .x_greatest = x.greatest,
            .weight_greatest = w.greatest};
  };
  for (const ProductCase& one : forward_cases()) {
    for (const bool ragged : {false, true}) {
      const ProductSize s = size_of(one, ragged);
      ScaledAttrs attrs{.first = one.first, .second = one.second};
      const std::string name = "scaled_linear_" + one.name + (ragged ? "_ragged" : "");
      to.add<ops::ScaledLinear>(name, in(attrs, s), attrs, {.ragged = ragged});
      auto with_bias = in(attrs, s);
      with_bias.bias = f32({s.columns});
      attrs.out = DType::kBF16;
      to.add<ops::ScaledLinear>(name + "_bias_to_bf16", with_bias, attrs,
                                {.tolerance = 2e-2, .ragged = ragged});
    }
  }
  for (const auto& [rows, outputs, inputs] : kTimedProducts) {
    const ScaledAttrs attrs{.first = {kBlock}, .second = {kSquare}};
    to.time<ops::ScaledLinear>(in(attrs, {rows, outputs, inputs}), attrs);
  }
}

template <>
void cases<ops::ScaledLinearGradInput>(Cases& to) {
  const auto in = [](const ScaledAttrs& attrs, ProductSize s) -> ops::ScaledLinearGradInput::In<Sample> {
    const ScaledOperand dy = scaled(attrs.first, s.rows, s.depth),
                        w = scaled(attrs.second, s.columns, s.depth);
    return {.dy = dy.codes,
            .dy_scales = dy.scales,
            .weight = w.codes,
            .weight_scales = w.scales,
            .dy_greatest = dy.greatest,
            .weight_greatest = w.greatest};
  };
  for (const ProductCase& one : input_cases()) {
    for (const bool ragged : {false, true}) {
      const ScaledAttrs attrs{.first = one.first, .second = one.second};
      to.add<ops::ScaledLinearGradInput>("scaled_linear_grad_input_" + one.name + (ragged ? "_ragged" : ""),
                                         in(attrs, size_of(one, ragged)), attrs, {.ragged = ragged});
    }
  }
  for (const auto& [rows, outputs, inputs] : kTimedProducts) {
    const ScaledAttrs attrs{.first = {kBlock}, .second = {kSquare, true}};
    to.time<ops::ScaledLinearGradInput>(in(attrs, {rows, inputs, outputs}), attrs);
  }
}

template <>
void cases<ops::ScaledLinearGradWeight>(Cases& to) {
  const auto in = [](const ScaledAttrs& attrs, ProductSize s) -> ops::ScaledLinearGradWeight::In<Sample> {
    const ScaledOperand dy = scaled(attrs.first, s.rows, s.depth),
                        x = scaled(attrs.second, s.columns, s.depth);
    return {.dy = dy.codes,
            .dy_scales = dy.scales,
            .x = x.codes,
            .x_scales = x.scales,
            .dy_greatest = dy.greatest,
            .x_greatest = x.greatest};
  };
  for (const ProductCase& one : weight_cases()) {
    for (const bool ragged : {false, true}) {
      const ScaledAttrs attrs{.first = one.first, .second = one.second};
      to.add<ops::ScaledLinearGradWeight>("scaled_linear_grad_weight_" + one.name + (ragged ? "_ragged" : ""),
                                          in(attrs, size_of(one, ragged)), attrs, {.ragged = ragged});
    }
  }
  for (const auto& [rows, outputs, inputs] : kTimedProducts) {
    const ScaledAttrs attrs{.first = {kBlock}, .second = {kBlock}};
    for (const bool adds : {false, true})
      to.time<ops::ScaledLinearGradWeight>(in(attrs, {outputs, inputs, rows}), attrs, {.adds = adds});
  }
}

}  // namespace strata::device
