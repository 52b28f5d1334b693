#include <algorithm>
#include <cmath>

#include "optim/definition.h"
#include "optim/operands.h"

namespace strata::optim {

using graph::NodeView;

namespace {

std::vector<StateSpec> states(const Shape& rows) {
  return {{"momentum", DType::kF32, rows}};
}

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  if (view.in(UpdateOperands::kParameter).shape.rank() != 2)
    graph::shape_error(view, "Muon updates matrices");
  return infer_update(view, states(shape_of_rows(view)));
}

// Of the three products of each step: x xᵀ, its square, and x times the polynomial.
graph::Cost cost(const NodeView& view) {
  const Shape rows = shape_of_rows(view);
  const auto n = static_cast<double>(std::min(rows[0], rows[1]));
  const auto m = static_cast<double>(std::max(rows[0], rows[1]));
  const auto steps = static_cast<double>(std::get<Muon>(view.attrs<UpdateAttrs>().rule.optimizer).steps);
  graph::Cost cost = update_cost(view, 2, 2, 1);
  cost.flops += steps * 2 * n * n * (2 * m + n);
  return cost;
}

double scale_of(MuonScale scale, const Shape& rows) {
  const auto first = static_cast<double>(rows[0]), second = static_cast<double>(rows[1]);
  if (scale == MuonScale::kMatchRmsAdamW) return 0.2 * std::sqrt(std::max(first, second));
  return std::sqrt(std::max(1.0, first / second));
}

// What the scale does to the update it must not do to the decay.
UpdateRule applied(const UpdateRule& rule, const Shape& rows) {
  const double scale = scale_of(std::get<Muon>(rule.optimizer).scale, rows);
  UpdateRule out = rule;
  out.lr_scale *= scale;
  out.weight_decay /= scale;
  return out;
}

}  // namespace

// The products need the whole matrix.
const graph::OpDef kMuon{"muon", "update", infer, cost, placements_whole, nullptr, {{0, 0}, {1, 1}}};

const Definition kMuonDefinition{.name = "muon",
                                 .unit = Definition::Unit::kMatrix,
                                 .op = [](const Shape&) -> const graph::OpDef& { return kMuon; },
                                 .states = states,
                                 .applied = applied};

}  // namespace strata::optim
