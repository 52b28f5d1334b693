#include "optim/definition.h"
#include "optim/operands.h"

namespace strata::optim {

using graph::NodeView;

namespace {

std::vector<StateSpec> states(const Shape& rows) {
  if (rows.rank() == 1) return {{"variance", DType::kF32, rows}};
  return {{"row", DType::kF32, {rows[0]}, StateLayout::kRows},
          {"column", DType::kF32, {rows[1]}, StateLayout::kTensor}};
}

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  if (view.in(UpdateOperands::kParameter).shape.rank() > 2)
    graph::shape_error(view, "Adafactor updates matrices and vectors");
  return infer_update(view, states(shape_of_rows(view)));
}

// Sums over the parameter, means over the gradient's rows and columns, the update's size, the update.
graph::Cost cost(const NodeView& view) {
  return update_cost(view, 12, 3, 3);
}

}  // namespace

// The means of columns and the sizes of parameter and update are those of the whole tensor.
const graph::OpDef kAdafactor{
    "adafactor", "update", infer, cost, placements_whole, nullptr, {{0, 0}, {1, 1}, {2, 2}}};
const graph::OpDef kAdafactorVector{"adafactor_vector", "update", infer,           cost,
                                    placements_whole,   nullptr,  {{0, 0}, {1, 1}}};

const Definition kAdafactorDefinition{.name = "adafactor",
                                      .unit = Definition::Unit::kTensor,
                                      .op = [](const Shape& rows) -> const graph::OpDef& {
                                        return rows.rank() == 1 ? kAdafactorVector : kAdafactor;
                                      },
                                      .states = states,
                                      .grain = nullptr};

}  // namespace strata::optim
