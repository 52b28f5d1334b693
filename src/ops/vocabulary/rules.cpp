#include "ops/rules.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::ops {

const OpDef VocabStart::def = define<VocabStart>({
    .name = "vocab_start",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<VocabStart> {
      require_rank_block(node);
      return {.start = {DType::kI32, {node.attrs.parts}}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto& node, Axis axis) -> Splits<VocabStart> {
      if (axis != node.attrs.axis || node.attrs.ranks != 1) return {};
      return {{{.rank = kR}, {.start = kS0}}};
    },
    .localize =
        [](const auto& node) {
          VocabStartAttrs attrs = node.attrs;
          attrs.ranks = node.graph.mesh().size(attrs.axis);
          attrs.parts /= attrs.ranks;
          return attrs;
        },
});

ValueId vocab_start(Graph& graph, ValueId table, Axis axis) {
  if (graph.mesh().size(axis) == 1 || graph.placement(table, axis) != kS0) return kNone;
  const graph::Cut cut = graph::cut_along(graph.value(table), 0, graph.mesh(), axis);
  return add<VocabStart>(graph, {.rank = graph::rank_block(graph)},
                         {.axis = axis, .parts = cut.ranks, .rows = graph::share_of(cut, 0)})
      .start;
}

}  // namespace strata::ops
