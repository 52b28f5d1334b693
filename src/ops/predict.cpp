#include "ops/predict.h"

#include "ops/latent_attention.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  const Value& targets = view.in(TargetsAhead::kTargets);
  const int64_t length = view.attrs<TargetsAheadAttrs>().sequence_length;
  require(view, targets.dtype == DType::kI32 && targets.shape.rank() == 1, "targets must be i32[N]");
  require(view,
          view.in(TargetsAhead::kAhead).shape == targets.shape &&
              view.in(TargetsAhead::kAhead).dtype == targets.dtype,
          "what lies ahead must be i32[N] as the targets are");
  require(view, length > 0 && targets.shape[0] % length == 0, "targets must be those of whole sequences");
  return {{"tokens", DType::kI32, targets.shape}, {"ahead", DType::kI32, targets.shape}};
}

// Parts of the rows are whole sequences on the axes of a batch; on others all ranks have all rows.
std::vector<PlacementOption> placements(const NodeView& view, Axis) {
  const int64_t sequences =
      view.in(TargetsAhead::kTargets).shape[0] / view.attrs<TargetsAheadAttrs>().sequence_length;
  if (sequences < 2) return {};
  return {{{kS0, kS0}, {kS0, kS0}}};
}

Cost cost(const NodeView& view) {
  return {0, graph::streamed_bytes(view)};
}

}  // namespace

const OpDef kTargetsAhead{"targets_ahead", "elementwise", infer, cost, placements};

Ahead targets_ahead(Graph& graph, ValueId targets, ValueId ahead, int64_t sequence_length) {
  const auto made = graph.add_node(kTargetsAhead, {targets, ahead}, TargetsAheadAttrs{sequence_length});
  return {made[TargetsAhead::kTokens], made[TargetsAhead::kTargetsAhead]};
}

ValueId side_by_side(Graph& graph, ValueId a, ValueId b) {
  return graph.add_node(kJoinLatents, {kNone, a, b})[0];
}

}  // namespace strata::ops
