#include "ops/rules.h"
#include "ops/experts/rows.h"
#include "ops/scaled_experts/scaled_experts.h"
#include "ops/scaled_linear/placed.h"

namespace strata::ops {

void ScaledExpertsAttrs::describe(graph::AttributeText& to) const {
  ExpertsAttrs::describe(to);
  to("first", first.rule.str());
  to("second", second.rule.str());
  if (second.across) to("second_across", second.across);
  if (first_along_pairs) to("first_along_pairs", first_along_pairs->str());
  if (second_along_pairs) to("second_along_pairs", second_along_pairs->str());
  pair_rounding.describe(to);
  to("out", strata::name_of(out));
}

namespace {

template <typename Op>
void require_codes(const View<Op>& node, const graph::Ref& codes, const graph::Ref& scales,
                   const quantize::ScaleRule& rule, const graph::Ref& greatest) {
  require(node, codes->shape.rank() == 2, "codes must be a matrix");
  const auto layout = quantize::layout_of(rule, codes->shape[0], codes->shape[1]);
  require(node, codes->dtype == quantize::dtype_of(rule.format()), "codes must have the format of the rule");
  require(node,
          scales->dtype == quantize::dtype_of(rule.scale_type()) &&
              scales->shape == Shape{layout.scale_rows, layout.scale_columns},
          "scales must have the shape and type of the rule");
  require(node,
          rule.scale_type() != quantize::ScaleType::kE4M3 ||
              (greatest && greatest->shape == Shape{1, layout.greatest}),
          "nvfp4 needs the greatest magnitude of the tensor or of each row");
}

template <typename Op>
void require_operands(const View<Op>& node, const graph::Ref& first, const graph::Ref& first_scales,
                      const graph::Ref& second, const graph::Ref& second_scales,
                      const graph::Ref& first_greatest, const graph::Ref& second_greatest) {
  require_slots(node);
  require(node, !node.attrs.first.across, "activations must be quantised along rows");
  require_codes(node, first, first_scales, node.attrs.first.rule, first_greatest);
  require_codes(node, second, second_scales, node.attrs.second.rule, second_greatest);
}

// The weights of all experts, as they are stored.
struct Weights {
  int64_t outputs, inputs;  // of one expert
};
template <typename Op>
Weights weights_of(const View<Op>& node, bool along_columns) {
  const Shape& w = node.in.weight->shape;
  const int64_t all = w[along_columns ? 1 : 0];
  require(node, node.attrs.experts > 0 && all % node.attrs.experts == 0,
          "the weight must have the same number of outputs for each expert");
  return {all / node.attrs.experts, w[along_columns ? 0 : 1]};
}

template <typename Op>
ScaledExpertsAttrs localize_scaled(const View<Op>& node) {
  ScaledExpertsAttrs own = node.attrs;
  static_cast<ExpertsAttrs&>(own) = experts_of_rank(node.attrs, node.graph.mesh());
  return own;
}

// Of a weight where tokens are split.
PlacedCodes by_experts(const ScaledExpertsAttrs& attrs, Axis axis, int dim) {
  return is_distributed(attrs, axis) ? cut_codes(attrs.second, dim) : PlacedCodes{};
}

// x has its rows `by`, and the result the other way round.
template <typename Op, RowsBy by>
OpDef scaled_experts_product(std::string_view name) {
  return define<Op>({
      .name = name,
      .family = "experts",
      .infer = [](const auto& node) -> Outputs<Op> {
        const auto& in = node.in;
        require_operands(node, in.x, in.x_scales, in.weight, in.weight_scales, in.x_greatest,
                         in.weight_greatest);
        require(node, !node.attrs.second.across, "the weight must be [experts · outputs, inputs]");
        const Weights w = weights_of(node, false);
        require(node, in.x->shape == Shape({rows_by(node, by), w.inputs}),
                by == RowsBy::kToken ? "x must have one row per token, and the weight's inputs"
                                     : "h must have one row per pair, and the weight's inputs");
        return {.y = {node.attrs.out,
                      {rows_by(node, other_rows(by)), w.outputs},
                      by == RowsBy::kToken ? expert_segments(node) : std::vector<int64_t>()}};
      },
      .cost =
          [](const auto& node) {
            return experts_cost(node, node.in.weight->shape.elements() / node.attrs.experts);
          },
      .placements = [](const auto& node, Axis axis) -> Splits<Op> {
        const auto split = [](Placement rows, PlacedCodes x, PlacedCodes weight, Placement y) {
          return graph::Split<Op>{{.x = x.codes,
                                   .x_scales = x.scales,
                                   .ids = rows,
                                   .weight = weight.codes,
                                   .weight_scales = weight.scales,
                                   .offsets = rows,
                                   .x_greatest = rows == kS0 ? kS1 : kR},
                                  {.y = y}};
        };
        const auto& [first, second] = std::pair(node.attrs.first, node.attrs.second);
        return {split(kS0, cut_codes(first, 0), by_experts(node.attrs, axis, 0), kS0),
                by == RowsBy::kToken ? split(kR, {}, cut_codes(second, 0), kS1)
                                     : split(kR, cut_codes(first, 1), cut_codes(second, 1), kP)};
      },
      .localize = localize_scaled<Op>,
  });
}

// dy has its rows `by`.
template <typename Op, RowsBy by>
OpDef scaled_experts_grad_input(std::string_view name) {
  return define<Op>({
      .name = name,
      .family = "experts",
      .infer = [](const auto& node) -> Outputs<Op> {
        const auto& in = node.in;
        require_operands(node, in.dy, in.dy_scales, in.weight, in.weight_scales, in.dy_greatest,
                         in.weight_greatest);
        const Weights w = weights_of(node, !node.attrs.second.across);
        require(node, in.dy->shape == Shape({rows_by(node, by), w.outputs}),
                "the gradient must have the shape of the result");
        return {.dx = {node.attrs.out, {rows_by(node, other_rows(by)), w.inputs}}};
      },
      .cost =
          [](const auto& node) {
            return experts_cost(node, node.in.weight->shape.elements() / node.attrs.experts);
          },
      .placements = [](const auto& node, Axis axis) -> Splits<Op> {
        const auto split = [](Placement rows, PlacedCodes dy, PlacedCodes weight, Placement dx) {
          return graph::Split<Op>{{.dy = dy.codes,
                                   .dy_scales = dy.scales,
                                   .ids = rows,
                                   .weight = weight.codes,
                                   .weight_scales = weight.scales,
                                   .offsets = rows,
                                   .dy_greatest = rows == kS0 ? kS1 : kR},
                                  {.dx = dx}};
        };
        const auto& [first, second] = std::pair(node.attrs.first, node.attrs.second);
        const int of_outputs = second.across ? 0 : 1, of_inputs = 1 - of_outputs;
        return {split(kS0, cut_codes(first, 0), by_experts(node.attrs, axis, of_outputs), kS0),
                by == RowsBy::kSlot ? split(kR, cut_codes(first, 1), cut_codes(second, of_outputs), kP)
                                    : split(kR, {}, cut_codes(second, of_inputs), kS1)};
      },
      .localize = localize_scaled<Op>,
  });
}

template <typename Op, RowsBy by>
OpDef scaled_experts_grad_weight(std::string_view name) {
  return define<Op>({
      .name = name,
      .family = "experts_weight",
      .infer = [](const auto& node) -> Outputs<Op> {
        const auto& in = node.in;
        require_operands(node, in.dy, in.dy_scales, in.x, in.x_scales, in.dy_greatest, in.x_greatest);
        require(node,
                !node.attrs.pair_rounding.stochastic ||
                    (in.places && in.places->shape == Shape{in.dy->shape[0], 2}),
                "stochastic rounding needs the places of the gradient's rows, i32[rows, 2]");
        require(node, node.attrs.first_along_pairs && node.attrs.second_along_pairs,
                "a weight gradient needs rules along pairs");
        require(node, in.dy->shape[0] == rows_by(node, by) && in.x->shape[0] == rows_by(node, other_rows(by)),
                "of the gradient and x one must have a row per pair, the other a row per token");
        return {.dw = {DType::kF32,
                       {node.attrs.experts * in.dy->shape[1], in.x->shape[1]},
                       segments_of_all(node.attrs, *in.dy),
                       false,
                       0}};
      },
      .cost = [](const auto& node) { return experts_cost(node, node.in.dy->shape[1] * node.in.x->shape[1]); },
      .placements = [](const auto& node, Axis axis) -> Splits<Op> {
        const auto split = [](Placement rows, PlacedCodes dy, PlacedCodes x, Placement dw) {
          return graph::Split<Op>{{.dy = dy.codes,
                                   .dy_scales = dy.scales,
                                   .x = x.codes,
                                   .x_scales = x.scales,
                                   .ids = rows,
                                   .offsets = rows,
                                   .dy_greatest = rows == kS0 ? kS1 : kR,
                                   .x_greatest = rows == kS0 ? kS1 : kR,
                                   .places = rows},
                                  {.dw = dw}};
        };
        const auto& [first, second] = std::pair(node.attrs.first, node.attrs.second);
        Splits<Op> splits{split(kS0, cut_codes(first, 0), cut_codes(second, 0),
                                is_distributed(node.attrs, axis) ? kS0 : kP)};
        if (by == RowsBy::kToken) splits.push_back(split(kR, {}, cut_codes(second, 1), kS1));
        // Random bits follow from where the columns are in the whole.
        if (by == RowsBy::kSlot && (!node.attrs.pair_rounding.stochastic || node.in.rank))
          splits.push_back(split(kR, cut_codes(first, 1), {}, kS0));
        return splits;
      },
      .localize =
          [](const View<Op>& node) {
            ScaledExpertsAttrs own = localize_scaled(node);
            if (own.pair_rounding.stochastic) cut_columns(own.pair_rounding, *node.in.dy, node.graph.mesh());
            return own;
          },
  });
}

}  // namespace

const OpDef ScaledExpertsIn::def =
    scaled_experts_product<ScaledExpertsIn, RowsBy::kToken>("scaled_experts_in");
const OpDef ScaledExpertsInGradInput::def =
    scaled_experts_grad_input<ScaledExpertsInGradInput, RowsBy::kSlot>("scaled_experts_in_grad_input");
const OpDef ScaledExpertsInGradWeight::def =
    scaled_experts_grad_weight<ScaledExpertsInGradWeight, RowsBy::kSlot>("scaled_experts_in_grad_weight");
const OpDef ScaledExpertsOut::def =
    scaled_experts_product<ScaledExpertsOut, RowsBy::kSlot>("scaled_experts_out");
const OpDef ScaledExpertsOutGradInput::def =
    scaled_experts_grad_input<ScaledExpertsOutGradInput, RowsBy::kToken>("scaled_experts_out_grad_input");
const OpDef ScaledExpertsOutGradWeight::def =
    scaled_experts_grad_weight<ScaledExpertsOutGradWeight, RowsBy::kToken>("scaled_experts_out_grad_weight");

}  // namespace strata::ops
