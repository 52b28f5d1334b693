#include "ops/rules.h"
#include "ops/norm/norm.h"

namespace strata::ops {
namespace {

template <typename Op>
Outputs<Op> infer_norm(const View<Op>& node) {
  const auto& in = node.in;
  const Value& x = *in.x;
  require(node, x.shape.rank() == 2, "x must be a matrix");
  const Shape rows{x.shape[0]}, columns{x.shape[1]};
  bool fits = in.weight->shape == columns;
  if constexpr (requires { in.bias; }) fits = fits && in.bias->shape == columns;
  require(node, fits, "weight and bias must have one element a column");
  require(node, !in.residual || (in.residual->shape == x.shape && in.residual->dtype == x.dtype),
          "x and the residual must have the same shape and dtype");
  Outputs<Op> out{};
  out.y = {x.dtype, x.shape};
  if constexpr (requires { out.mean; }) out.mean = {DType::kF32, rows};
  out.rstd = {DType::kF32, rows};
  out.h = in.residual ? Spec{x.dtype, x.shape} : Spec::none();
  return out;
}

// The input of the norm.
template <typename Op>
ValueId normed_by(const View<Op>& node) {
  return node.in.residual ? node.out.h : node.in.x;
}

// What both gradients read.
template <typename Grad, typename Op>
graph::InIds<Grad> grad_inputs(const View<Op>& node, ValueId dy) {
  graph::InIds<Grad> in{};
  in.dy = dy;
  in.h = normed_by(node);
  if constexpr (requires { in.mean; }) in.mean = node.out.mean;
  in.rstd = node.out.rstd;
  return in;
}

template <typename Op, typename GradInput, typename GradWeight>
void gradient_norm(GradientBuilder& builder, const View<Op>& node) {
  Graph& graph = builder.graph();
  const auto& in = node.in;
  const ValueId dy = builder.gradient_of(node.out.y);
  // The gradient of the normalised sum goes to x and the residual alike; `dh` is what already flows into it.
  const ValueId dh = builder.take_gradient(normed_by(node));
  ValueId gradient = dh;
  if (dy != kNone) {
    auto read = grad_inputs<GradInput>(node, dy);
    read.weight = in.weight;
    read.dh = dh;
    gradient = add<GradInput>(graph, read, node.attrs).dx;
  }
  builder.add_gradient(in.x, gradient);
  if (in.residual) builder.add_gradient(in.residual, gradient);
  // The ones and zeros of a norm without parameters are constants.
  if (dy == kNone || !builder.is_parameter(in.weight)) return;
  builder.weight_grad();
  graph::OutIds<GradWeight> out{};
  out.dw = builder.parameter_gradient(in.weight);
  if constexpr (requires { out.db; }) out.db = builder.parameter_gradient(in.bias);
  add_into<GradWeight>(graph, grad_inputs<GradWeight>(node, dy), out, node.attrs);
}

// The normalised value again, from the sum that backward keeps.
template <typename Op>
ValueId recompute_norm(Graph& graph, const View<Op>& node) {
  graph::InIds<Op> in{};
  in.x = normed_by(node);
  in.weight = node.in.weight;
  if constexpr (requires { in.bias; }) in.bias = node.in.bias;
  return add<Op>(graph, in, node.attrs).y;
}

template <typename Op>
graph::Rules<Op> grad_input_rules(std::string_view name) {
  return {
      .name = name,
      .family = "elementwise",
      .infer = [](const auto& node) -> Outputs<Op> {
        return {.dx = {node.in.h->dtype, node.in.h->shape}};
      },
      .cost = [](const auto& node) { return streamed(node, 8); },
      .placements = [](const auto&, Axis) -> Splits<Op> {
        graph::Split<Op> rows{{}, {.dx = kS0}};
        rows.in.dy = rows.in.h = rows.in.rstd = rows.in.dh = kS0;
        if constexpr (requires { rows.in.mean; }) rows.in.mean = kS0;
        return {rows};
      },
      .in_place = {{"dx", "dh"}, {"dx", "dy"}},
  };
}

}  // namespace

const OpDef RmsNorm::def = define<RmsNorm>({
    .name = "rms_norm",
    .family = "elementwise",
    .infer = infer_norm<RmsNorm>,
    .cost = [](const auto& node) { return streamed(node, 5); },
    .placements = [](const auto&, Axis) -> Splits<RmsNorm> {
      return {{{.x = kS0, .weight = kR, .residual = kS0}, {.y = kS0, .rstd = kS0, .h = kS0}}};
    },
    .gradient = gradient_norm<RmsNorm, RmsNormGradInput, RmsNormGradWeight>,
    .in_place = {{"h", "residual"}, {"h", "x"}},
    .recompute = recompute_norm<RmsNorm>,
});

const OpDef RmsNormGradInput::def =
    define<RmsNormGradInput>(grad_input_rules<RmsNormGradInput>("rms_norm_grad_input"));

const OpDef RmsNormGradWeight::def = define<RmsNormGradWeight>({
    .name = "rms_norm_grad_weight",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RmsNormGradWeight> {
      return {.dw = {DType::kF32, {node.in.dy->shape[1]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<RmsNormGradWeight> {
      return {{{.dy = kS0, .h = kS0, .rstd = kS0}, {.dw = kP}}};
    },
});

const OpDef LayerNorm::def = define<LayerNorm>({
    .name = "layer_norm",
    .family = "elementwise",
    .infer = infer_norm<LayerNorm>,
    .cost = [](const auto& node) { return streamed(node, 5); },
    .placements = [](const auto&, Axis) -> Splits<LayerNorm> {
      return {{{.x = kS0, .weight = kR, .bias = kR, .residual = kS0},
               {.y = kS0, .mean = kS0, .rstd = kS0, .h = kS0}}};
    },
    .gradient = gradient_norm<LayerNorm, LayerNormGradInput, LayerNormGradWeight>,
    .in_place = {{"h", "residual"}, {"h", "x"}},
    .recompute = recompute_norm<LayerNorm>,
});

const OpDef LayerNormGradInput::def =
    define<LayerNormGradInput>(grad_input_rules<LayerNormGradInput>("layer_norm_grad_input"));

const OpDef LayerNormGradWeight::def = define<LayerNormGradWeight>({
    .name = "layer_norm_grad_weight",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<LayerNormGradWeight> {
      const Spec columns{DType::kF32, {node.in.dy->shape[1]}};
      return {.dw = columns, .db = columns};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<LayerNormGradWeight> {
      return {{{.dy = kS0, .h = kS0, .mean = kS0, .rstd = kS0}, {.dw = kP, .db = kP}}};
    },
});

Normed rms_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, double eps, double weight_offset) {
  const auto out =
      add<RmsNorm>(graph, {.x = x, .weight = weight, .residual = residual}, {eps, weight_offset});
  return {out.y, residual != kNone ? out.h : x};
}

Normed layer_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, ValueId bias, double eps) {
  const auto out =
      add<LayerNorm>(graph, {.x = x, .weight = weight, .bias = bias, .residual = residual}, {eps});
  return {out.y, residual != kNone ? out.h : x};
}

}  // namespace strata::ops
