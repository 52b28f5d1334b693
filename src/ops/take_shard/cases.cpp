#include "ops/cases.h"
#include "graph/reshard.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Attributes for the whole value, which any other axis splits.
graph::ReshardAttrs taken(int dim) {
  return {.axis = Axis::kTensor, .from = {}, .to = graph::Placement::sharded(dim)};
}
// Attributes on a rank.
graph::ReshardAttrs taken(int dim, const graph::Cut& cut) {
  graph::ReshardAttrs attrs = taken(dim);
  attrs.ranks = cut.ranks;
  attrs.cuts = {{.from = {}, .to = cut}};
  attrs.sequence = cut.sequence;
  return attrs;
}

}  // namespace

template <>
void cases<graph::TakeShard>(Cases& to) {
  using Op = graph::TakeShard;
  const Operand rank = rank_at({{Axis::kTensor, 1}});
  const std::vector<OutputName<Op>> none;
  for (const Sizes& s : Cases::sizes()) {
    to.add<Op>("take_shard_whole" + s.name, {.x = act({s.rows, s.width}), .rank = rank}, taken(0),
               {.ragged = s.ragged});
    const CaseOptions<Op> of_rank{.replicated_only = true, .ragged = s.ragged, .differentiable = none};
    // Two sequences of six: the chunks of the second of three ranks.
    to.add<Op>("take_shard_of_sequences" + s.name, {.x = act({12, s.width}), .rank = rank},
               taken(0, {{12}, 3, 0, 6}), of_rank);
    to.add<Op>("take_shard_0" + s.name, {.x = act({8, 12}), .rank = rank}, taken(0, {{8}, 2}), of_rank);
    // Seven rows, which three ranks cannot share equally.
    to.add<Op>("take_shard_uneven" + s.name, {.x = act({7, 12}), .rank = rank}, taken(0, {{7}, 3, 1}),
               of_rank);
    to.add<Op>("take_shard_1" + s.name, {.x = act({8, 12}, {8, 4}), .rank = rank}, taken(1, {{8, 4}, 2}),
               of_rank);
  }
  to.untimed<Op>("a copy, priced by the bandwidth");
}

}  // namespace strata::device
