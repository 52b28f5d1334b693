#include "optim/definition.h"

namespace strata::optim {

using graph::NodeView;

namespace {

std::vector<StateSpec> states(const Shape& rows) {
  return {{"m", DType::kF32, rows}, {"v", DType::kF32, rows}};
}

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  return infer_update(view, states(shape_of_rows(view)));
}

graph::Cost cost(const NodeView& view) {
  return update_cost(view, 2, 2, 1);
}

}  // namespace

const graph::OpDef kAdamW{
    "adamw", "update",     infer, cost, placements_by_element, nullptr, {{0, 0}, {1, 1}, {2, 2}},
    nullptr, localize_rows};

const Definition kAdamWDefinition{.name = "adamw",
                                  .unit = Definition::Unit::kRows,
                                  .op = [](const Shape&) -> const graph::OpDef& { return kAdamW; },
                                  .states = states};

}  // namespace strata::optim
