#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  require(view, view.in(TakeRow::kIndex).shape == Shape{1} && view.in(TakeRow::kIndex).dtype == DType::kI32,
          "the index must be i32[1]");
  return {{"row", view.in(TakeRow::kX).dtype, {1, view.in(TakeRow::kX).shape[1]}}};
}

Cost cost(const NodeView& view) {
  return {0, 2 * static_cast<double>(view.out(TakeRow::kRow).bytes())};
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS1, kR}, {kS1}}};
}

}  // namespace

const OpDef kTakeRow{"take_row", "elementwise", infer, cost, placements};

ValueId take_row(Graph& graph, ValueId x, ValueId index) {
  return graph.add_node(kTakeRow, {x, index})[0];
}

}  // namespace strata::ops
