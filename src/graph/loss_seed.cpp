#include "graph/loss_seed.h"

namespace strata::graph {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  for (const int input : {LossSeed::kMainTerms, LossSeed::kTerms}) {
    if (view.in(input).shape != Shape{1} || view.in(input).dtype != DType::kI64)
      shape_error(view, "counts of terms must be i64[1]");
  }
  return {{"seed", DType::kF32, {1}}};
}

Cost cost(const NodeView& view) {
  return {2, streamed_bytes(view)};
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {};
}

}  // namespace

const OpDef kLossSeed{"loss_seed", "elementwise", infer, cost, placements};

}  // namespace strata::graph
