#include "ops/experts/experts.h"

#include "ops/experts/rows.h"
#include "ops/rules.h"

namespace strata::ops {

void ExpertsAttrs::describe(graph::AttributeText& to) const {
  to("experts", experts);
  if (parts > 1) to("parts", parts);
  if (busy_slots > 0) to("busy_slots", busy_slots);
  for (const Axis axis : distributed_axes) to("distributed_axis", name_of(axis));
  if (terms_axis) to("terms_axis", name_of(*terms_axis));
}

ExpertsAttrs experts_of_rank(const ExpertsAttrs& attrs, const graph::Mesh& mesh) {
  ExpertsAttrs own = attrs;
  for (const Axis axis : attrs.distributed_axes) own.experts /= mesh.size(axis);
  own.busy_slots /= attrs.parts;
  own.parts = 1;
  own.distributed_axes.clear();
  return own;
}

std::vector<int64_t> segments_of_all(const ExpertsAttrs& attrs, const Value& outputs) {
  const std::vector<int64_t> of_one = outputs.parts(1);
  std::vector<int64_t> all;
  for (int64_t expert = 0; expert < attrs.experts; ++expert)
    all.insert(all.end(), of_one.begin(), of_one.end());
  return all;
}

void require_slots(const NodeView& node, const ExpertsAttrs& attrs, const Value& ids, const Value* offsets) {
  require(node, ids.shape.rank() == 2, "ids must be i32[N, k]");
  if (offsets == nullptr) return;
  require(node, offsets->shape.rank() == 1 && offsets->shape[0] >= attrs.parts,
          "offsets must be i32[N + 1] of every rank");
  require(node, ids.shape[1] == 1, "with offsets ids must be i32[S, 1]");
}

namespace {

// Rows of one expert's matrix.
template <typename Op>
int64_t expert_outputs(const View<Op>& node) {
  const int64_t experts = node.attrs.experts;
  const Shape& w = node.in.weight->shape;
  require(node, w.rank() == 2 && experts > 0 && w[0] % experts == 0,
          "the weight must be [experts · outputs, inputs]");
  return w[0] / experts;
}

// x has its rows `by`, and the result the other way round. `name`: of the operand, for messages.
template <typename Op, typename GradInput, typename GradWeight, RowsBy by>
OpDef experts_product(std::string_view name) {
  return define<Op>({
      .name = name,
      .family = "experts",
      .infer = [](const auto& node) -> Outputs<Op> {
        constexpr bool kIn = by == RowsBy::kToken;
        const Value& x = *node.in.x;
        require_slots(node);
        const int64_t outputs = expert_outputs(node);
        require(node, x.shape.rank() == 2 && x.shape[0] == rows_by(node, by),
                kIn ? "x must have one row per token" : "h must have one row per pair");
        require(node, x.shape[1] == node.in.weight->shape[1],
                kIn ? "the last axis of x must equal the last axis of the weight"
                    : "the last axis of h must equal the last axis of the weight");
        return {.y = {x.dtype,
                      {rows_by(node, other_rows(by)), outputs},
                      kIn ? expert_segments(node) : std::vector<int64_t>()}};
      },
      .cost =
          [](const auto& node) {
            return experts_cost(node, node.in.weight->shape.elements() / node.attrs.experts);
          },
      .placements = [](const auto& node, Axis axis) -> Splits<Op> {
        constexpr bool kIn = by == RowsBy::kToken;
        const Placement weight = is_distributed(node.attrs, axis) ? kS0 : kR;
        return {{{.x = kS0, .ids = kS0, .weight = weight, .offsets = kS0}, {.y = kS0}},
                // Each expert is cut: by its outputs, or by its inputs.
                kIn ? graph::Split<Op>{{.x = kR, .ids = kR, .weight = kS0, .offsets = kR}, {.y = kS1}}
                    : graph::Split<Op>{{.x = kS1, .ids = kR, .weight = kS1, .offsets = kR}, {.y = kP}}};
      },
      .gradient =
          [](GradientBuilder& builder, const auto& node) {
            Graph& graph = builder.graph();
            const auto& [x, ids, weight, offsets] = node.in;
            const ValueId dy = builder.gradient_of(node.out.y);
            if (builder.wants(x)) {
              builder.add_gradient(
                  x, add<GradInput>(graph, {.dy = dy, .ids = ids, .weight = weight, .offsets = offsets},
                                    node.attrs)
                         .dx);
            }
            builder.weight_grad();
            add_into<GradWeight>(graph, {.dy = dy, .x = x, .ids = ids, .offsets = offsets},
                                 {.dw = builder.parameter_gradient(weight)}, node.attrs);
          },
      .localize = localize_experts<Op>,
  });
}

// dy has its rows `by`.
template <typename Op, RowsBy by>
OpDef experts_grad_input(std::string_view name) {
  return define<Op>({
      .name = name,
      .family = "experts",
      .infer = [](const auto& node) -> Outputs<Op> {
        require_slots(node);
        const Value& dy = *node.in.dy;
        require(node, dy.shape == Shape({rows_by(node, by), expert_outputs(node)}),
                "the gradient must have the shape of the result");
        return {.dx = {dy.dtype, {rows_by(node, other_rows(by)), node.in.weight->shape[1]}}};
      },
      .cost =
          [](const auto& node) {
            return experts_cost(node, node.in.weight->shape.elements() / node.attrs.experts);
          },
      .placements = [](const auto& node, Axis axis) -> Splits<Op> {
        constexpr bool kIn = by == RowsBy::kSlot;
        const Placement weight = is_distributed(node.attrs, axis) ? kS0 : kR;
        return {{{.dy = kS0, .ids = kS0, .weight = weight, .offsets = kS0}, {.dx = kS0}},
                kIn ? graph::Split<Op>{{.dy = kS1, .ids = kR, .weight = kS0, .offsets = kR}, {.dx = kP}}
                    : graph::Split<Op>{{.dy = kR, .ids = kR, .weight = kS1, .offsets = kR}, {.dx = kS1}}};
      },
      .localize = localize_experts<Op>,
  });
}

template <typename Op, RowsBy by>
OpDef experts_grad_weight(std::string_view name) {
  return define<Op>({
      .name = name,
      .family = "experts_weight",
      .infer = [](const auto& node) -> Outputs<Op> {
        require_slots(node);
        const Shape &dy = node.in.dy->shape, &x = node.in.x->shape;
        require(node,
                dy.rank() == 2 && x.rank() == 2 && dy[0] == rows_by(node, by) &&
                    x[0] == rows_by(node, other_rows(by)),
                "of the gradient and x one must have a row per pair, the other a row per token");
        return {.dw = {DType::kF32,
                       {node.attrs.experts * dy[1], x[1]},
                       segments_of_all(node.attrs, *node.in.dy),
                       false,
                       0}};
      },
      .cost = [](const auto& node) { return experts_cost(node, node.in.dy->shape[1] * node.in.x->shape[1]); },
      .placements = [](const auto& node, Axis axis) -> Splits<Op> {
        constexpr bool kIn = by == RowsBy::kSlot;
        const Placement dw = is_distributed(node.attrs, axis) ? kS0 : kP;
        return {{{.dy = kS0, .x = kS0, .ids = kS0, .offsets = kS0}, {.dw = dw}},
                kIn ? graph::Split<Op>{{.dy = kS1, .x = kR, .ids = kR, .offsets = kR}, {.dw = kS0}}
                    : graph::Split<Op>{{.dy = kR, .x = kS1, .ids = kR, .offsets = kR}, {.dw = kS1}}};
      },
      .localize = localize_experts<Op>,
  });
}

}  // namespace

const OpDef ExpertsIn::def =
    experts_product<ExpertsIn, ExpertsInGradInput, ExpertsInGradWeight, RowsBy::kToken>("experts_in");
const OpDef ExpertsInGradInput::def =
    experts_grad_input<ExpertsInGradInput, RowsBy::kSlot>("experts_in_grad_input");
const OpDef ExpertsInGradWeight::def =
    experts_grad_weight<ExpertsInGradWeight, RowsBy::kSlot>("experts_in_grad_weight");
const OpDef ExpertsOut::def =
    experts_product<ExpertsOut, ExpertsOutGradInput, ExpertsOutGradWeight, RowsBy::kSlot>("experts_out");
const OpDef ExpertsOutGradInput::def =
    experts_grad_input<ExpertsOutGradInput, RowsBy::kToken>("experts_out_grad_input");
const OpDef ExpertsOutGradWeight::def =
    experts_grad_weight<ExpertsOutGradWeight, RowsBy::kToken>("experts_out_grad_weight");

const OpDef ExpertCounts::def = define<ExpertCounts>({
    .name = "expert_counts",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ExpertCounts> {
      const Shape& ids = node.in.ids->shape;
      require(node, ids.rank() == 2, "ids must be i32[N, k]");
      require(node, !node.in.targets || node.in.targets->shape == Shape{ids[0]}, "targets must be i32[N]");
      return {.counts = {DType::kI64, {node.attrs.experts}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ExpertCounts> {
      return {{{.ids = kS0, .targets = kS0}, {.counts = kP}}};
    },
});

void count_experts(Graph& graph, ValueId ids, ValueId targets, ValueId counts) {
  add_into<ExpertCounts>(graph, {.ids = ids, .targets = targets}, {.counts = counts},
                         {graph.value(counts).shape[0]});
}

const OpDef RunningCounts::def = define<RunningCounts>({
    .name = "running_counts",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RunningCounts> {
      const Shape& counts = node.in.counts->shape;
      require(node, counts.rank() == 1, "counts must be i64[experts]");
      return {.now = {DType::kF32, {1, counts[0]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<RunningCounts> {
      return {{{.counts = kP}, {.now = kP}}};
    },
});

}  // namespace strata::ops
