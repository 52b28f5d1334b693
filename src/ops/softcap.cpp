#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  require(view, view.in(Softcap::kX).dtype == DType::kF32, "logits are fp32");
  return {{"y", DType::kF32, view.in(Softcap::kX).shape}};
}

Cost cost(const NodeView& view) {
  return streamed(view, 10);
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS0}, {kS0}}, {{kS1}, {kS1}}};
}

}  // namespace

const OpDef kSoftcap{"softcap", "elementwise", infer, cost, placements, nullptr, {{0, 0}}};

}  // namespace strata::ops
