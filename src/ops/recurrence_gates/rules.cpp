#include "ops/rules.h"
#include "ops/recurrence_gates/recurrence_gates.h"

namespace strata::ops {
namespace {

// Checks the projections and parameters of the op and of its gradients.
template <typename Op>
void require_gates(const View<Op>& node) {
  const auto& in = node.in;
  const auto& attrs = node.attrs;
  const bool delta = attrs.kind == RecurrenceKind::kDelta;
  const Value& a = *in.a;
  require(node, a.shape.rank() == 2 && in.a_log->shape.rank() == 1, "a must be [N, D] and a_log [heads]");
  const int64_t rows = a.shape[0], width = a.shape[1], heads = in.a_log->shape[0];
  require(node, heads > 0 && (delta ? width % heads == 0 : width == heads),
          "a must have a column a head, or, of the delta rule, equally many for each head");
  require(node, in.dt_bias->shape == Shape{width}, "dt_bias must have one element a column of a");
  if constexpr (requires { in.b; }) {
    require(node, in.b.present() == delta, "b comes with the delta rule and only with it");
    require(node, !in.b || (in.b->shape == Shape{rows, heads} && in.b->dtype == a.dtype),
            "b must be [N, heads] in the dtype of a");
  }
  require(node, attrs.beta_scale > 0 && attrs.least >= 0 && attrs.least <= attrs.greatest,
          "beta needs a positive scale, and step sizes a range that is not empty");
  if constexpr (requires { in.dg; }) {
    require(node, in.dg->shape == a.shape, "dg must have the shape of a");
    bool fits = true;
    if (in.dbeta) fits = in.dbeta->shape == Shape{rows, heads};
    require(node, fits, "dbeta must be f32[N, heads]");
  }
}

// Operands of one value a row are cut by rows; of one a head, by heads.
template <typename Op>
graph::Split<Op> by_rows() {
  graph::Split<Op> split = split_alike<Op>(kS0);
  split.in.a_log = split.in.dt_bias = kR;
  return split;
}
template <typename Op>
graph::Split<Op> by_heads() {
  graph::Split<Op> split = split_alike<Op>(kS1);
  split.in.a_log = split.in.dt_bias = kS0;
  return split;
}

}  // namespace

const OpDef RecurrenceGates::def = define<RecurrenceGates>({
    .name = "recurrence_gates",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RecurrenceGates> {
      require_gates(node);
      const Shape& a = node.in.a->shape;
      return {.g = {DType::kF32, a}, .beta = {DType::kF32, {a[0], node.in.a_log->shape[0]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 16); },
    .placements = [](const auto&, Axis) -> Splits<RecurrenceGates> {
      return {by_rows<RecurrenceGates>(), by_heads<RecurrenceGates>()};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& in = node.in;
          Graph& graph = builder.graph();
          const ValueId dg = builder.gradient_of(node.out.g), dbeta = builder.gradient_of(node.out.beta);
          const auto given = add<RecurrenceGatesGradInput>(
              graph,
              {.dg = dg, .dbeta = dbeta, .a = in.a, .b = in.b, .a_log = in.a_log, .dt_bias = in.dt_bias},
              node.attrs);
          builder.add_gradient(in.a, given.da);
          if (in.b) builder.add_gradient(in.b, given.db);
          if (!builder.wants(in.a_log)) return;
          builder.weight_grad();
          add_into<RecurrenceGatesGradWeight>(
              graph,
              {.dg = dg, .dbeta = in.b ? kNone : dbeta, .a = in.a, .a_log = in.a_log, .dt_bias = in.dt_bias},
              {.da_log = builder.parameter_gradient(in.a_log),
               .ddt_bias = builder.parameter_gradient(in.dt_bias)},
              node.attrs);
        },
    .recompute = again<RecurrenceGates>,
});

const OpDef RecurrenceGatesGradInput::def = define<RecurrenceGatesGradInput>({
    .name = "recurrence_gates_grad_input",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RecurrenceGatesGradInput> {
      require_gates(node);
      return {.da = Spec::like(*node.in.a), .db = node.in.b ? Spec::like(*node.in.b) : Spec::none()};
    },
    .cost = [](const auto& node) { return streamed(node, 20); },
    .placements = [](const auto&, Axis) -> Splits<RecurrenceGatesGradInput> {
      return {by_rows<RecurrenceGatesGradInput>(), by_heads<RecurrenceGatesGradInput>()};
    },
    .in_place = {{"da", "a"}, {"db", "b"}},
});

const OpDef RecurrenceGatesGradWeight::def = define<RecurrenceGatesGradWeight>({
    .name = "recurrence_gates_grad_weight",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RecurrenceGatesGradWeight> {
      require_gates(node);
      require(node, node.in.dbeta.present() == (node.attrs.kind == RecurrenceKind::kStateSpace),
              "dbeta comes with state space and only with it");
      return {.da_log = {DType::kF32, node.in.a_log->shape},
              .ddt_bias = {DType::kF32, node.in.dt_bias->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 20); },
    .placements = [](const auto&, Axis) -> Splits<RecurrenceGatesGradWeight> {
      graph::Split<RecurrenceGatesGradWeight> rows = by_rows<RecurrenceGatesGradWeight>(),
                                              heads = by_heads<RecurrenceGatesGradWeight>();
      rows.out = {.da_log = kP, .ddt_bias = kP};
      heads.out = {.da_log = kS0, .ddt_bias = kS0};
      return {rows, heads};
    },
});

RecurrenceGateValues recurrence_gates(Graph& graph, ValueId a, ValueId b, ValueId a_log, ValueId dt_bias,
                                      const RecurrenceGatesAttrs& attrs) {
  const auto out = add<RecurrenceGates>(graph, {.a = a, .b = b, .a_log = a_log, .dt_bias = dt_bias}, attrs);
  return {out.g, out.beta};
}

}  // namespace strata::ops
