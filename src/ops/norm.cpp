#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// --- RMSNorm

void require_vector(const NodeView& view, int input) {
  require(view, view.in(input).shape == Shape{view.in(0).shape[1]},
          "weight and bias must have one element a column");
}

void require_residual(const NodeView& view, int input) {
  if (view.has(input)) {
    require(view, view.in(input).shape == view.in(0).shape && view.in(input).dtype == view.in(0).dtype,
            "x and the residual must have the same shape and dtype");
  }
}

std::vector<ValueSpec> infer_rms(const NodeView& view) {
  require(view, view.in(RmsNorm::kX).shape.rank() == 2, "x must be a matrix");
  require_vector(view, 1);
  require_residual(view, 2);
  const Value& x = view.in(RmsNorm::kX);
  return {{"y", x.dtype, x.shape},
          {"rstd", DType::kF32, {x.shape[0]}},
          {"h", x.dtype, x.shape, {}, !view.has(RmsNorm::kResidual)}};
}

Cost cost_norm(const NodeView& view) {
  return streamed(view, 5);
}

std::vector<PlacementOption> placements_rms(const NodeView&, Axis) {
  return {{{kS0, kR, kS0}, {kS0, kS0, kS0}}};
}

// What the rules of both norms go by: RMS norm has no bias and no mean.
struct NormParts {
  ValueId x, residual, h;
  std::vector<ValueId> vectors, statistics;
};
NormParts parts_of(const Node& node) {
  const bool rms = node.op == &kRmsNorm;
  const ValueId x = node.inputs[0];
  const ValueId residual = node.inputs[rms ? int{RmsNorm::kResidual} : int{LayerNorm::kResidual}];
  const ValueId sum = node.outputs[rms ? int{RmsNorm::kH} : int{LayerNorm::kH}];
  NormParts parts{x, residual, residual != kNone ? sum : x, {}, {}};
  if (rms) {
    parts.vectors = {node.inputs[RmsNorm::kWeight]};
    parts.statistics = {node.outputs[RmsNorm::kRstd]};
  } else {
    parts.vectors = {node.inputs[LayerNorm::kWeight], node.inputs[LayerNorm::kBias]};
    parts.statistics = {node.outputs[LayerNorm::kMean], node.outputs[LayerNorm::kRstd]};
  }
  return parts;
}

void gradient_norm(GradientBuilder& builder, const Node& node, const OpDef& grad_input,
                   const OpDef& grad_weight) {
  Graph& graph = builder.graph();
  const NormParts parts = parts_of(node);
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  // The gradient of the normalised sum goes to x and the residual alike; `dh` is what already flows into it.
  const ValueId dh = builder.take_gradient(parts.h);
  std::vector<ValueId> read{dy, parts.h};
  read.insert(read.end(), parts.statistics.begin(), parts.statistics.end());
  ValueId gradient = dh;
  if (dy != kNone) {
    std::vector<ValueId> inputs = read;
    inputs.insert(inputs.end(), {parts.vectors[0], dh});
    gradient = graph.add_node(grad_input, inputs, node.attrs)[0];
  }
  builder.add_gradient(parts.x, gradient);
  if (parts.residual != kNone) builder.add_gradient(parts.residual, gradient);
  // The ones and zeros of a norm without parameters are constants.
  if (dy == kNone || !builder.is_parameter(parts.vectors[0])) return;
  builder.weight_grad();
  std::vector<ValueId> gradients;
  for (const ValueId vector : parts.vectors) gradients.push_back(builder.parameter_gradient(vector));
  graph.add_node_into(grad_weight, read, gradients, node.attrs);
}

// The normalised value again, from the sum that backward keeps.
ValueId recompute_norm(Graph& graph, const Node& node, int output) {
  if (output != 0) return kNone;
  const NormParts parts = parts_of(node);
  std::vector<ValueId> inputs{parts.h};
  inputs.insert(inputs.end(), parts.vectors.begin(), parts.vectors.end());
  inputs.push_back(kNone);
  return graph.add_node(*node.op, inputs, node.attrs)[0];
}

void gradient_rms(GradientBuilder& builder, const Node& node) {
  gradient_norm(builder, node, kRmsNormGradInput, kRmsNormGradWeight);
}

std::vector<ValueSpec> infer_grad_input(const NodeView& view) {
  return {{"dx", view.in(1).dtype, view.in(1).shape}};
}

std::vector<PlacementOption> placements_rms_grad_input(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0, kR, kS0}, {kS0}}};
}

std::vector<ValueSpec> infer_rms_grad_weight(const NodeView& view) {
  return {{"dw", DType::kF32, {view.in(RmsNormGradWeight::kDy).shape[1]}}};
}

std::vector<PlacementOption> placements_rms_grad_weight(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kP}}};
}

// --- LayerNorm

std::vector<ValueSpec> infer_layer(const NodeView& view) {
  require(view, view.in(LayerNorm::kX).shape.rank() == 2, "x must be a matrix");
  require_vector(view, 1);
  require_vector(view, 2);
  require_residual(view, 3);
  const Shape rows{view.in(LayerNorm::kX).shape[0]};
  const Value& x = view.in(LayerNorm::kX);
  return {{"y", x.dtype, x.shape},
          {"mean", DType::kF32, rows},
          {"rstd", DType::kF32, rows},
          {"h", x.dtype, x.shape, {}, !view.has(LayerNorm::kResidual)}};
}

std::vector<PlacementOption> placements_layer(const NodeView&, Axis) {
  return {{{kS0, kR, kR, kS0}, {kS0, kS0, kS0, kS0}}};
}

void gradient_layer(GradientBuilder& builder, const Node& node) {
  gradient_norm(builder, node, kLayerNormGradInput, kLayerNormGradWeight);
}

std::vector<PlacementOption> placements_layer_grad_input(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0, kS0, kR, kS0}, {kS0}}};
}

std::vector<ValueSpec> infer_layer_grad_weight(const NodeView& view) {
  const Shape columns{view.in(LayerNormGradWeight::kDy).shape[1]};
  return {{"dw", DType::kF32, columns}, {"db", DType::kF32, columns}};
}

std::vector<PlacementOption> placements_layer_grad_weight(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0, kS0}, {kP, kP}}};
}

Cost cost_grad(const NodeView& view) {
  return streamed(view, 8);
}

}  // namespace

const OpDef kRmsNorm{"rms_norm",
                     "elementwise",
                     infer_rms,
                     cost_norm,
                     placements_rms,
                     gradient_rms,
                     {{RmsNorm::kH, RmsNorm::kResidual}, {RmsNorm::kH, RmsNorm::kX}},
                     recompute_norm};
const OpDef kRmsNormGradInput{
    "rms_norm_grad_input",
    "elementwise",
    infer_grad_input,
    cost_grad,
    placements_rms_grad_input,
    nullptr,
    {{RmsNormGradInput::kDx, RmsNormGradInput::kDh}, {RmsNormGradInput::kDx, RmsNormGradInput::kDy}}};
const OpDef kRmsNormGradWeight{"rms_norm_grad_weight", "elementwise", infer_rms_grad_weight, cost_grad,
                               placements_rms_grad_weight};
const OpDef kLayerNorm{"layer_norm",
                       "elementwise",
                       infer_layer,
                       cost_norm,
                       placements_layer,
                       gradient_layer,
                       {{LayerNorm::kH, LayerNorm::kResidual}, {LayerNorm::kH, LayerNorm::kX}},
                       recompute_norm};
const OpDef kLayerNormGradInput{
    "layer_norm_grad_input",
    "elementwise",
    infer_grad_input,
    cost_grad,
    placements_layer_grad_input,
    nullptr,
    {{LayerNormGradInput::kDx, LayerNormGradInput::kDh}, {LayerNormGradInput::kDx, LayerNormGradInput::kDy}}};
const OpDef kLayerNormGradWeight{"layer_norm_grad_weight", "elementwise", infer_layer_grad_weight, cost_grad,
                                 placements_layer_grad_weight};

Normed rms_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, double eps, double weight_offset) {
  const auto out = graph.add_node(kRmsNorm, {x, weight, residual}, RmsNormAttrs{eps, weight_offset});
  return {out[RmsNorm::kY], residual != kNone ? out[RmsNorm::kH] : x};
}

Normed layer_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, ValueId bias, double eps) {
  const auto out = graph.add_node(kLayerNorm, {x, weight, bias, residual}, LayerNormAttrs{eps});
  return {out[LayerNorm::kY], residual != kNone ? out[LayerNorm::kH] : x};
}

}  // namespace strata::ops
