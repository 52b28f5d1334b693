#include "ops/rules.h"
#include "ops/scaled_linear/placed.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::ops {

using quantize::ScaleRule;

void ScaledAttrs::describe(graph::AttributeText& to) const {
  to("first", first.rule.str());
  if (first.across) to("first_across", first.across);
  to("second", second.rule.str());
  if (second.across) to("second_across", second.across);
  to("out", strata::name_of(out));
  if (sums != PartialSums::kF32) to("sums", quantize::name_of(sums));
}

namespace {

// One operand of a matmul, [count, depth].
struct Matrix {
  int64_t count = 0, depth = 0;
};

template <typename Op>
Matrix matrix_of(const View<Op>& node, const graph::Ref& codes, const graph::Ref& scales,
                 const graph::Ref& greatest, const ScaledOperandAttrs& attrs) {
  require(node, codes->shape.rank() == 2, "codes must be a matrix");
  const auto layout = quantize::layout_of(attrs.rule, codes->shape[0], codes->shape[1]);
  require(node, codes->dtype == quantize::dtype_of(attrs.rule.format()),
          "codes must have the format of the rule");
  require(node,
          scales->dtype == quantize::dtype_of(attrs.rule.scale_type()) &&
              scales->shape == Shape{layout.scale_rows, layout.scale_columns},
          "scales must have the shape and type of the rule");
  require(node, attrs.rule.scale_type() != quantize::ScaleType::kE4M3 || greatest.present(),
          "nvfp4 needs the greatest magnitude of the tensor");
  return attrs.across ? Matrix{codes->shape[1], codes->shape[0]} : Matrix{codes->shape[0], codes->shape[1]};
}

// Parts of the result along the dimension that an operand's count becomes.
std::vector<int64_t> segments_of(const graph::Ref& codes, const ScaledOperandAttrs& attrs) {
  const int dim = attrs.across ? 1 : 0;
  return codes->segments.empty() || codes->segment_dim() != dim ? std::vector<int64_t>{} : codes->segments;
}

Cost cost_of_product(const NodeView& view, const Matrix& a, const Matrix& b) {
  return {2.0 * static_cast<double>(a.count) * static_cast<double>(b.count) * static_cast<double>(a.depth),
          graph::streamed_bytes(view)};
}

PlacedCodes cut_count(const ScaledOperandAttrs& attrs) {
  return cut_codes(attrs, attrs.across ? 1 : 0);
}
PlacedCodes cut_depth(const ScaledOperandAttrs& attrs) {
  return cut_codes(attrs, attrs.across ? 0 : 1);
}
constexpr PlacedCodes kWholeOperand{};

}  // namespace

const OpDef ScaledLinear::def = define<ScaledLinear>({
    .name = "scaled_linear",
    .family = "gemm",
    .infer = [](const auto& node) -> Outputs<ScaledLinear> {
      const auto& in = node.in;
      const Matrix x = matrix_of(node, in.x, in.x_scales, in.x_greatest, node.attrs.first),
                   weight =
                       matrix_of(node, in.weight, in.weight_scales, in.weight_greatest, node.attrs.second);
      require(node, x.depth == weight.depth, "x and the weight must have the same inputs");
      require(node, !in.bias || in.bias->shape == Shape{weight.count},
              "the bias must have one element an output");
      return {.y = {node.attrs.out, {x.count, weight.count}, segments_of(in.weight, node.attrs.second)}};
    },
    .cost =
        [](const auto& node) {
          const Shape& y = node.out.y->shape;
          const Shape& x = node.in.x->shape;
          return cost_of_product(node.untyped(), {y[0], x[node.attrs.first.across ? 0 : 1]}, {y[1], 0});
        },
    .placements = [](const auto& node, Axis) -> Splits<ScaledLinear> {
      const auto& [first, second, out, sums] = node.attrs;
      const auto split = [](PlacedCodes x, PlacedCodes weight, Placement bias, Placement y) {
        return graph::Split<ScaledLinear>{{.x = x.codes,
                                           .x_scales = x.scales,
                                           .weight = weight.codes,
                                           .weight_scales = weight.scales,
                                           .bias = bias},
                                          {.y = y}};
      };
      Splits<ScaledLinear> splits{split(cut_count(first), kWholeOperand, kR, kS0),
                                  split(kWholeOperand, cut_count(second), kS0, kS1)};
      // A bias would be added once a shard.
      if (!node.in.bias) splits.push_back(split(cut_depth(first), cut_depth(second), kR, kP));
      return splits;
    },
});

const OpDef ScaledLinearGradInput::def = define<ScaledLinearGradInput>({
    .name = "scaled_linear_grad_input",
    .family = "gemm",
    .infer = [](const auto& node) -> Outputs<ScaledLinearGradInput> {
      const auto& in = node.in;
      const Matrix dy = matrix_of(node, in.dy, in.dy_scales, in.dy_greatest, node.attrs.first),
                   weight =
                       matrix_of(node, in.weight, in.weight_scales, in.weight_greatest, node.attrs.second);
      require(node, dy.depth == weight.depth, "the gradient must have one column an output");
      return {.dx = {node.attrs.out, {dy.count, weight.count}}};
    },
    .cost =
        [](const auto& node) {
          const Shape& dx = node.out.dx->shape;
          const Shape& dy = node.in.dy->shape;
          return cost_of_product(node.untyped(), {dx[0], dy[node.attrs.first.across ? 0 : 1]}, {dx[1], 0});
        },
    .placements = [](const auto& node, Axis) -> Splits<ScaledLinearGradInput> {
      const auto& [first, second, out, sums] = node.attrs;
      const auto split = [](PlacedCodes dy, PlacedCodes weight, Placement dx) {
        return graph::Split<ScaledLinearGradInput>{
            {.dy = dy.codes, .dy_scales = dy.scales, .weight = weight.codes, .weight_scales = weight.scales},
            {.dx = dx}};
      };
      return {split(cut_count(first), kWholeOperand, kS0), split(cut_depth(first), cut_depth(second), kP),
              split(kWholeOperand, cut_count(second), kS1)};
    },
});

const OpDef ScaledLinearGradWeight::def = define<ScaledLinearGradWeight>({
    .name = "scaled_linear_grad_weight",
    .family = "gemm_weight",
    .infer = [](const auto& node) -> Outputs<ScaledLinearGradWeight> {
      const auto& in = node.in;
      const Matrix dy = matrix_of(node, in.dy, in.dy_scales, in.dy_greatest, node.attrs.first),
                   x = matrix_of(node, in.x, in.x_scales, in.x_greatest, node.attrs.second);
      require(node, dy.depth == x.depth, "gradient and x must have the same rows");
      return {.dw = {DType::kF32, {dy.count, x.count}}};
    },
    .cost =
        [](const auto& node) {
          const Shape& dw = node.out.dw->shape;
          const Shape& dy = node.in.dy->shape;
          return cost_of_product(node.untyped(), {dw[0], dy[node.attrs.first.across ? 0 : 1]}, {dw[1], 0});
        },
    .placements = [](const auto& node, Axis) -> Splits<ScaledLinearGradWeight> {
      const auto& [first, second, out, sums] = node.attrs;
      const auto split = [](PlacedCodes dy, PlacedCodes x, Placement dw) {
        return graph::Split<ScaledLinearGradWeight>{
            {.dy = dy.codes, .dy_scales = dy.scales, .x = x.codes, .x_scales = x.scales}, {.dw = dw}};
      };
      return {split(cut_depth(first), cut_depth(second), kP), split(cut_count(first), kWholeOperand, kS0),
              split(kWholeOperand, cut_count(second), kS1)};
    },
});

}  // namespace strata::ops
