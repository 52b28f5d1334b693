#include "optim/router_bias.h"

#include "base/error.h"

namespace strata::optim {

using graph::Axis;
using graph::NodeView;
using graph::Value;

namespace {

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  const Value &bias = view.in(RouterBiasUpdate::kBias), &loads = view.in(RouterBiasUpdate::kLoads);
  if (bias.dtype != DType::kF32 || loads.dtype != DType::kI64 || bias.shape != loads.shape)
    graph::shape_error(view, "the bias must be f32 and the loads i64, one for each expert");
  return {{"bias", DType::kF32, bias.shape}};
}

graph::Cost cost(const NodeView& view) {
  return {3 * static_cast<double>(view.in(0).shape.elements()), graph::streamed_bytes(view)};
}

// The mean is over all experts.
std::vector<graph::PlacementOption> placements(const NodeView&, Axis) {
  return {};
}

}  // namespace

const graph::OpDef kRouterBiasUpdate{"router_bias_update", "update", infer,   cost,
                                     placements,           nullptr,  {{0, 0}}};

void balance_router(graph::Graph& graph, const graph::Parameter& bias, graph::ValueId scalars) {
  STRATA_CHECK(bias.loads != graph::kNone, "nobody counts what {} is moved by", graph.value(bias.value).name);
  graph.set_layer(bias.layer);
  graph.add_node_into(kRouterBiasUpdate, {bias.value, bias.loads, scalars}, {bias.value},
                      RouterBiasAttrs{bias.balance_rate});
  graph.set_layer(graph::kNone);
}

}  // namespace strata::optim
