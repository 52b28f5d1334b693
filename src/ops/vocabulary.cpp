#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  const auto& attrs = view.attrs<VocabStartAttrs>();
  graph::require_rank_block(view, VocabStart::kRank);
  return {{"start", DType::kI32, {attrs.parts}}};
}

Cost cost(const NodeView& view) {
  return {0, graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements(const NodeView& view, Axis axis) {
  const auto& attrs = view.attrs<VocabStartAttrs>();
  if (axis != attrs.axis || attrs.ranks != 1) return {};
  return {{{kR}, {kS0}}};
}

graph::Attributes localize(const NodeView& view) {
  auto attrs = view.attrs<VocabStartAttrs>();
  attrs.ranks = view.graph.mesh().size(attrs.axis);
  attrs.parts /= attrs.ranks;
  return attrs;
}

}  // namespace

const OpDef kVocabStart{.name = "vocab_start",
                        .family = "elementwise",
                        .infer = infer,
                        .cost = cost,
                        .placements = placements,
                        .localize = localize};

ValueId vocab_start(Graph& graph, ValueId table, Axis axis) {
  if (graph.mesh().size(axis) == 1 || graph.placement(table, axis) != kS0) return kNone;
  const graph::Cut cut = graph::cut_along(graph.value(table), 0, graph.mesh(), axis);
  return graph.add_node(
      kVocabStart, {graph::rank_block(graph)},
      VocabStartAttrs{.axis = axis, .parts = cut.ranks, .rows = graph::share_of(cut, 0)})[0];
}

}  // namespace strata::ops
