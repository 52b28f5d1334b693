#include "ops/expert_bias/expert_bias.h"

#include "ops/rules.h"

namespace strata::ops {
namespace {

template <typename Op>
Shape shape_of_weights(const View<Op>& node) {
  const Shape& slots = node.in.ids->shape;
  return node.in.offsets ? Shape{slots.elements()} : slots;
}

// `rows`: what has a row a slot, or with weights a row a token.
template <typename Op>
void require_biased_rows(const View<Op>& node, const Value& rows) {
  require_slots(node);
  const bool weighted = node.in.weights.present();
  require(node, rows.shape.rank() == 2 && rows.shape[0] == (weighted ? tokens_of(node) : slots_of(node)),
          "there must be a row a slot, or with weights a row a token");
  require(node, !weighted || node.in.weights->shape == shape_of_weights(node),
          "weights must be f32[N, k], beside offsets f32[S]");
}
template <typename Op>
void require_bias(const View<Op>& node, int64_t columns) {
  require(node, node.in.bias->shape == Shape{node.attrs.experts * columns},
          "the bias must be f32[experts · columns]");
}

}  // namespace

const OpDef ExpertBias::def = define<ExpertBias>({
    .name = "expert_bias",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ExpertBias> {
      const Value& x = *node.in.x;
      require_biased_rows(node, x);
      require_bias(node, x.shape[1]);
      return {.y = {x.dtype, x.shape, x.segments}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
    .placements = [](const auto& node, Axis axis) -> Splits<ExpertBias> {
      if (axis == node.attrs.terms_axis)
        return {{{.x = kP, .ids = kR, .weights = kR, .bias = kR, .offsets = kR}, {.y = kP}}};
      const Placement bias = is_dealt(node.attrs, axis) ? kS0 : kR;
      return {{{.x = kS0, .ids = kS0, .weights = kS0, .bias = bias, .offsets = kS0}, {.y = kS0}},
              {{.x = kS1, .ids = kR, .weights = kR, .bias = kS0, .offsets = kR}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          Graph& graph = builder.graph();
          const auto& [x, ids, weights, bias, offsets] = node.in;
          const ValueId dy = builder.gradient_of(node.out.y);
          if (builder.wants(x)) builder.add_gradient(x, dy);
          if (weights && builder.wants(weights)) {
            builder.add_gradient(
                weights, add<ExpertBiasGradWeights>(
                             graph, {.dy = dy, .ids = ids, .bias = bias, .offsets = offsets}, node.attrs)
                             .dweights);
          }
          builder.weight_grad();
          add_into<ExpertBiasGrad>(graph, {.dy = dy, .ids = ids, .weights = weights, .offsets = offsets},
                                   {.dbias = builder.parameter_gradient(bias)}, node.attrs);
        },
    .in_place = {{"y", "x"}},
    .localize = localize_experts<ExpertBias>,
});

const OpDef ExpertBiasGrad::def = define<ExpertBiasGrad>({
    .name = "expert_bias_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ExpertBiasGrad> {
      require_biased_rows(node, *node.in.dy);
      const Value& dy = *node.in.dy;
      return {
          .dbias = {
              DType::kF32, {node.attrs.experts * dy.shape[1]}, segments_of_all(node.attrs, dy), false, 0}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
    .placements = [](const auto& node, Axis axis) -> Splits<ExpertBiasGrad> {
      if (axis == node.attrs.terms_axis)
        return {{{.dy = kR, .ids = kR, .weights = kR, .offsets = kR}, {.dbias = kP}}};
      const Placement dbias = is_dealt(node.attrs, axis) ? kS0 : kP;
      return {{{.dy = kS0, .ids = kS0, .weights = kS0, .offsets = kS0}, {.dbias = dbias}},
              {{.dy = kS1, .ids = kR, .weights = kR, .offsets = kR}, {.dbias = kS0}}};
    },
    .localize = localize_experts<ExpertBiasGrad>,
});

const OpDef ExpertBiasGradWeights::def = define<ExpertBiasGradWeights>({
    .name = "expert_bias_grad_weights",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ExpertBiasGradWeights> {
      const Shape& dy = node.in.dy->shape;
      require_slots(node);
      require(node, dy.rank() == 2 && dy[0] == tokens_of(node), "there must be a row a token");
      require_bias(node, dy[1]);
      return {.dweights = {DType::kF32, shape_of_weights(node)}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
    .placements = [](const auto& node, Axis axis) -> Splits<ExpertBiasGradWeights> {
      if (axis == node.attrs.terms_axis)
        return {{{.dy = kR, .ids = kR, .bias = kR, .offsets = kR}, {.dweights = kP}}};
      const Placement bias = is_dealt(node.attrs, axis) ? kS0 : kR;
      return {{{.dy = kS0, .ids = kS0, .bias = bias, .offsets = kS0}, {.dweights = kS0}}};
    },
    .localize = localize_experts<ExpertBiasGradWeights>,
});

}  // namespace strata::ops
