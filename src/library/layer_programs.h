// Costs of layers from their programs: a layer costs the difference between a small model with one layer more and one
// with one less, compiled and priced as a run's programs are. So what an op costs, keeps and sends is written in its
// rules only, and the formulas of `strata plan` add it up.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "plan/layer_costs.h"

namespace strata::library {

// Kinds of layers that differ in more than their experts.
struct ProgramKind {
  layers::LayerKind kind;
  bool has_own_indexer = true;
  bool operator==(const ProgramKind&) const = default;
};

std::unique_ptr<const planning::LayerCosts> layer_programs(const models::ModelConfig& model,
                                                           std::vector<ProgramKind> kinds);

}  // namespace strata::library
