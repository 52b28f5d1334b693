#include "ops/take_part.h"

#include "graph/reshard.h"
#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

const TakePartAttrs& attrs_of(const NodeView& view) {
  return view.attrs<TakePartAttrs>();
}

void require_vector(const NodeView& view, int input) {
  require(view, view.in(input).dtype == DType::kF32 && view.in(input).shape.rank() == 1,
          "there must be f32[n]");
}
std::vector<ValueSpec> infer(const NodeView& view) {
  require_vector(view, TakePart::kX);
  graph::require_rank_block(view, TakePart::kRank);
  const int64_t numbers = view.in(TakePart::kX).shape[0];
  require(view, numbers % attrs_of(view).ranks == 0, "the ranks must divide the numbers");
  return {{"part", DType::kF32, {numbers / attrs_of(view).ranks}}};
}
std::vector<ValueSpec> infer_grad(const NodeView& view) {
  require_vector(view, TakePartGrad::kDy);
  graph::require_rank_block(view, TakePartGrad::kRank);
  return {{"dx", DType::kF32, {view.in(TakePartGrad::kDy).shape[0] * attrs_of(view).ranks}}};
}
Cost cost(const NodeView& view) {
  return streamed(view, 1);
}

std::vector<PlacementOption> placements(const NodeView& view, Axis axis) {
  if (attrs_of(view).ranks > 1) return {};  // a part of what the rank has: no shard of the whole's
  if (axis == attrs_of(view).axis) return {{{kR, kR}, {kS0}}};
  return {{{kS0, kR}, {kS0}}};
}
std::vector<PlacementOption> placements_grad(const NodeView& view, Axis axis) {
  if (attrs_of(view).ranks > 1) return {{{kP, kR}, {kP}}};
  if (axis == attrs_of(view).axis) return {{{kS0, kR}, {kP}}};
  return {{{kS0, kR}, {kS0}}, {{kP, kR}, {kP}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[TakePart::kY]);
  builder.weight_grad();
  builder.graph().add_node_into(kTakePartGrad, {dy, node.inputs[TakePart::kRank]},
                                {builder.parameter_gradient(node.inputs[TakePart::kX])}, node.attrs);
}

}  // namespace

const OpDef kTakePart{.name = "take_part",
                      .family = "elementwise",
                      .infer = infer,
                      .cost = cost,
                      .placements = placements,
                      .gradient = gradient,
                      .localize = localize_ranks<TakePartAttrs>};
const OpDef kTakePartGrad{.name = "take_part_grad",
                          .family = "elementwise",
                          .infer = infer_grad,
                          .cost = cost,
                          .placements = placements_grad,
                          .localize = localize_ranks<TakePartAttrs>};

ValueId take_part(Graph& graph, ValueId x, Axis axis) {
  return graph.add_node(kTakePart, {x, graph::rank_block(graph)}, TakePartAttrs{.axis = axis})[0];
}

}  // namespace strata::ops
