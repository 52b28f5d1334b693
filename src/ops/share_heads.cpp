#include "graph/reshard.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  const auto& attrs = view.attrs<ShareHeadsAttrs>();
  const Value &q = view.in(ShareHeads::kQ), &kv = view.in(ShareHeads::kKv);
  graph::require_rank_block(view, ShareHeads::kRank);
  require(view, q.shape.rank() == 2 && kv.shape.rank() == 2 && q.shape[0] == kv.shape[0],
          "q and kv must have the same rows");
  require(view,
          kv.segments.size() == 2 && kv.segments[0] == kv.segments[1] && kv.segments[0] % attrs.head_dim == 0,
          "kv must have the parts [k | v] of whole heads");
  require(view, kv.segments[0] * attrs.copies % (attrs.ranks * attrs.head_dim) == 0,
          "each rank must have whole heads");
  const int64_t own = kv.segments[0] * attrs.copies / attrs.ranks;
  return {{"qkv", q.dtype, {q.shape[0], q.shape[1] + 2 * own}, {q.shape[1], own, own}}};
}

Cost cost(const NodeView& view) {
  return streamed(view, 0);
}

std::vector<PlacementOption> placements(const NodeView& view, Axis axis) {
  const auto& attrs = view.attrs<ShareHeadsAttrs>();
  if (axis != attrs.axis) return {{{kS0, kS0, kR}, {kS0}}};
  if (attrs.ranks != 1) return {};
  return {{{kS1, kR, kR}, {kS1}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  const auto given = builder.graph().add_node(
      kShareHeadsGrad, {builder.gradient_of(node.outputs[ShareHeads::kQkv]), node.inputs[ShareHeads::kRank]},
      node.attrs);
  builder.add_gradient(node.inputs[ShareHeads::kQ], given[ShareHeadsGrad::kDq]);
  builder.add_gradient(node.inputs[ShareHeads::kKv], given[ShareHeadsGrad::kDkv]);
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  const auto& attrs = view.attrs<ShareHeadsAttrs>();
  const Value& dqkv = view.in(ShareHeadsGrad::kDqkv);
  graph::require_rank_block(view, ShareHeadsGrad::kRank);
  require(view, dqkv.segments.size() == 3 && dqkv.segments[1] * attrs.ranks % attrs.copies == 0,
          "the gradient must have the parts [q | k | v]");
  const int64_t kv = dqkv.segments[1] * attrs.ranks / attrs.copies;
  return {{"dq", dqkv.dtype, {dqkv.shape[0], dqkv.segments[0]}},
          {"dkv", dqkv.dtype, {dqkv.shape[0], 2 * kv}, {kv, kv}}};
}

std::vector<PlacementOption> placements_grad(const NodeView& view, Axis axis) {
  const auto& attrs = view.attrs<ShareHeadsAttrs>();
  if (axis != attrs.axis) return {{{kS0, kR}, {kS0, kS0}}};
  if (attrs.ranks != 1) return {};
  return {{{kS1, kR}, {kS1, kP}}};
}

}  // namespace

const OpDef kShareHeads{.name = "share_heads",
                        .family = "elementwise",
                        .infer = infer,
                        .cost = cost,
                        .placements = placements,
                        .gradient = gradient,
                        .localize = localize_ranks<ShareHeadsAttrs>};
const OpDef kShareHeadsGrad{.name = "share_heads_grad",
                            .family = "elementwise",
                            .infer = infer_grad,
                            .cost = cost,
                            .placements = placements_grad,
                            .localize = localize_ranks<ShareHeadsAttrs>};

ValueId share_heads(Graph& graph, ValueId q, ValueId kv, Axis axis, const HeadSharing& sharing) {
  return graph.add_node(
      kShareHeads, {q, kv, graph::rank_block(graph)},
      ShareHeadsAttrs{.axis = axis, .head_dim = sharing.head_dim, .copies = sharing.copies})[0];
}

}  // namespace strata::ops
