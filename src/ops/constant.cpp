#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  return {{"values", DType::kF32, {view.attrs<ConstantAttrs>().elements}}};
}

Cost cost(const NodeView& view) {
  return {0, static_cast<double>(view.out(Constant::kValues).bytes())};
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {};
}

}  // namespace

const OpDef kConstant{"constant", "setup", infer, cost, placements};

ValueId constant(Graph& graph, const std::string& name, int64_t elements, double number) {
  Value value;
  value.name = name;
  value.shape = {elements};
  value.role = graph::Role::kConstant;
  const ValueId id = graph.add_value(std::move(value));
  graph.set_phase(graph::Phase::kSetup);
  graph.add_node_into(kConstant, {}, {id}, ConstantAttrs{elements, number});
  graph.set_phase(graph::Phase::kForward);
  return id;
}

}  // namespace strata::ops
