#include "optim/definition.h"

namespace strata::optim {

using graph::NodeView;

namespace {

std::vector<StateSpec> states(const Shape& rows) {
  return {{"momentum", DType::kF32, rows}};
}

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  return infer_update(view, states(shape_of_rows(view)));
}

graph::Cost cost(const NodeView& view) {
  return update_cost(view, 2, 2, 1);
}

}  // namespace

const graph::OpDef kLion{"lion",  "update",         infer,   cost,         placements_by_element,
                         nullptr, {{0, 0}, {1, 1}}, nullptr, localize_rows};

const Definition kLionDefinition{.name = "lion",
                                 .unit = Definition::Unit::kRows,
                                 .op = [](const Shape&) -> const graph::OpDef& { return kLion; },
                                 .states = states};

}  // namespace strata::optim
