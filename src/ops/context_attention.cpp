#include "ops/context_attention.h"

#include <algorithm>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/rules.h"

namespace strata::ops {

void ContextAttentionAttrs::describe(graph::AttributeText& to) const {
  to("head_dim", head_dim);
  to("sequence_length", sequence_length);
  to("kv_length", kv_length);
  to("scale", scale);
  to("window", window);
  to("softcap", softcap);
  to("causal", causal);
  to("bias_zero", bias_zero);
  to("axis", name_of(axis));
  if (ranks != 1) to("ranks", ranks);
  if (ring_step >= 0) to("ring_step", ring_step);
}

namespace {

constexpr Placement kS2 = Placement::sharded(2);

// --- split_qkv, join_qkv

std::vector<ValueSpec> infer_split(const NodeView& view) {
  const Value& qkv = view.in(SplitQkv::kQkv);
  require(view, qkv.shape.rank() == 2 && qkv.segments.size() == 3 && qkv.segments[1] == qkv.segments[2],
          "qkv must be [N, q | k | v], v as wide as k");
  const int64_t rows = qkv.shape[0], k = qkv.segments[1];
  return {{"q", qkv.dtype, {rows, qkv.segments[0]}}, {"kv", qkv.dtype, {rows, 2 * k}, {k, k}}};
}

std::vector<ValueSpec> infer_join(const NodeView& view) {
  const Value &q = view.in(JoinQkv::kQ), &kv = view.in(JoinQkv::kKv);
  require(view,
          q.shape.rank() == 2 && kv.shape.rank() == 2 && q.shape[0] == kv.shape[0] && q.dtype == kv.dtype &&
              kv.segments.size() == 2 && kv.segments[0] == kv.segments[1],
          "queries and [k | v] must have as many rows and one dtype");
  const int64_t k = kv.segments[0];
  return {{"qkv", q.dtype, {q.shape[0], q.shape[1] + 2 * k}, {q.shape[1], k, k}}};
}

Cost cost_copy(const NodeView& view) {
  return {0, graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_split(const NodeView&, Axis) {
  return {{{kS0}, {kS0, kS0}}, {{kS1}, {kS1, kS1}}};
}
std::vector<PlacementOption> placements_join(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}, {{kS1, kS1}, {kS1}}};
}

void gradient_split(GradientBuilder& builder, const Node& node) {
  const ValueId dq = builder.gradient_of(node.outputs[SplitQkv::kQ]),
                dkv = builder.gradient_of(node.outputs[SplitQkv::kKv]);
  builder.add_gradient(node.inputs[SplitQkv::kQkv], builder.graph().add_node(kJoinQkv, {dq, dkv})[0]);
}
void gradient_join(GradientBuilder& builder, const Node& node) {
  const auto parts = split_qkv(builder.graph(), builder.gradient_of(node.outputs[JoinQkv::kQkv]));
  builder.add_gradient(node.inputs[JoinQkv::kQ], parts.q);
  builder.add_gradient(node.inputs[JoinQkv::kKv], parts.kv);
}

// --- attention

// Inputs q, kv, kv_begin?, kv_end?, bias?, rank from `first` on.
void require_operands(const NodeView& view, int first) {
  const auto& attrs = view.attrs<ContextAttentionAttrs>();
  const Value &q = view.in(first), &kv = view.in(first + 1);
  const int64_t head_dim = attrs.head_dim, length = attrs.sequence_length, keys = attrs.kv_length;
  require(view, q.shape.rank() == 2 && q.shape[1] % head_dim == 0,
          "the queries must be whole heads [N, h · hd]");
  require(
      view,
      kv.shape.rank() == 2 && kv.segments.size() == 2 && kv.segments[0] == kv.segments[1] &&
          kv.segments[0] % head_dim == 0 && q.shape[1] % kv.segments[0] == 0 && kv.dtype == q.dtype,
      "keys and values must be [M, k | v] of whole heads in the queries' dtype, as many of each, a divisor "
      "of the query heads");
  require(view, length % 2 == 0 && q.shape[0] % length == 0 && q.shape[0] / length * keys == kv.shape[0],
          "queries and keys must be as many sequences, those of queries in two equal pieces");
  for (const int i : {first + 2, first + 3}) {
    if (view.has(i))
      require(view, view.in(i).shape == Shape{q.shape[0]}, "kv_begin and kv_end must have one entry a query");
  }
  const bool biased = view.has(first + 4);
  require(view, !attrs.causal || !view.has(first + 3), "causal rows end at themselves: leave out kv_end");
  require(view, attrs.causal || attrs.window == 0,
          "a window counts keys backwards: it needs causal attention");
  const bool ring = attrs.ring_step >= 0;
  require(view, (!attrs.causal && !biased && !ring) || length * (ring ? 1 : attrs.ranks) == keys,
          "queries that have a place among the keys must be the rank's share of them");
  require(view, !ring || !biased, "keys that come by take no bias");
  if (biased) {
    const Value& bias = view.in(first + 4);
    require(view,
            bias.dtype == DType::kF32 && bias.shape.rank() == 2 && bias.shape[0] == q.shape[1] / head_dim,
            "the bias must be f32[heads, distances]");
    const int64_t back = (attrs.window > 0 ? std::min(attrs.window, keys) : keys) - 1;
    const int64_t ahead = attrs.causal ? 0 : keys - 1;
    require(view, attrs.bias_zero >= back && attrs.bias_zero + ahead < bias.shape[1],
            "the bias must have an entry for every distance of a key from its query");
    require(view, attrs.softcap == 0, "capped scores take no bias: leave out one of the two");
  }
  graph::require_rank_block(view, first + 5);
}

std::vector<ValueSpec> infer(const NodeView& view) {
  require_operands(view, ContextAttention::kQ);
  const auto& attrs = view.attrs<ContextAttentionAttrs>();
  const Value& q = view.in(ContextAttention::kQ);
  const int64_t length = attrs.sequence_length;
  if (view.has(ContextAttention::kSinks)) {
    require(
        view,
        view.in(ContextAttention::kSinks).shape == Shape{q.shape[1] / attrs.head_dim} && attrs.ring_step <= 0,
        "sinks must be f32[heads], and in a ring they count once");
  }
  return {{"out", q.dtype, q.shape},
          {"lse", DType::kF32, {q.shape[0] / length, q.shape[1] / attrs.head_dim, length}}};
}

// A product of rows and keys; what the pieces of a rank see of the keys before them is the mean of all rows.
double product_flops(const NodeView& view, const Value& q) {
  const auto& attrs = view.attrs<ContextAttentionAttrs>();
  const auto length = static_cast<double>(attrs.kv_length), window = static_cast<double>(attrs.window);
  double keys = length;
  if (attrs.causal) keys = window > 0 && window < length ? window * (1 - window / length / 2) : length / 2;
  return 2.0 * static_cast<double>(q.shape.elements()) * keys;
}

Cost cost(const NodeView& view) {
  return {2 * product_flops(view, view.in(ContextAttention::kQ)), graph::streamed_bytes(view)};
}

// The batch; heads; and rows against whole keys, on the axis that shares them.
std::vector<PlacementOption> placements(const NodeView& view, Axis axis) {
  const auto& attrs = view.attrs<ContextAttentionAttrs>();
  if (axis == attrs.axis && attrs.ranks == 1)
    return {{{kS0, attrs.ring_step < 0 ? kR : kS0, kS0, kS0, kR, kR, kR}, {kS0, kS2}}};
  return {{{kS0, kS0, kS0, kS0, kR, kR, kR}, {kS0, kS0}}, {{kS1, kS1, kR, kR, kS0, kR, kS0}, {kS1, kS1}}};
}

graph::Attributes localize(const NodeView& global) {
  auto attrs = global.attrs<ContextAttentionAttrs>();
  attrs.ranks = global.graph.mesh().size(attrs.axis);
  attrs.sequence_length /= attrs.ranks;
  if (attrs.ring_step >= 0) attrs.kv_length /= attrs.ranks;
  return attrs;
}

void gradient(GradientBuilder& builder, const Node& node) {
  using In = ContextAttention;
  const ValueId dout = builder.gradient_of(node.outputs[In::kOut]);
  const ValueId bias = node.inputs[In::kBias];
  const auto gradients = builder.graph().add_node(
      kContextAttentionGrad,
      {dout, node.outputs[In::kOut], node.outputs[In::kLse], node.inputs[In::kQ], node.inputs[In::kKv],
       node.inputs[In::kKvBegin], node.inputs[In::kKvEnd], bias, node.inputs[In::kRank]},
      node.attrs);
  builder.add_gradient(node.inputs[In::kQ], gradients[ContextAttentionGrad::kDq]);
  builder.add_gradient(node.inputs[In::kKv], gradients[ContextAttentionGrad::kDkv]);
  if (bias != kNone) builder.add_gradient(bias, gradients[ContextAttentionGrad::kDbias]);
  const auto& attrs = node.attrs.as<ContextAttentionAttrs>();
  add_sink_gradient(builder, node.inputs[In::kSinks], {dout, node.outputs[In::kOut], node.outputs[In::kLse]},
                    {attrs.head_dim, attrs.sequence_length});
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  require_operands(view, ContextAttentionGrad::kQ);
  const Value &q = view.in(ContextAttentionGrad::kQ), &kv = view.in(ContextAttentionGrad::kKv);
  const bool biased = view.has(ContextAttentionGrad::kBias);
  return {{"dq", q.dtype, q.shape, q.segments},
          {"dkv", kv.dtype, kv.shape, kv.segments},
          {"dbias", DType::kF32, biased ? view.in(ContextAttentionGrad::kBias).shape : Shape{}, {}, !biased}};
}

Cost cost_grad(const NodeView& view) {
  return {5 * product_flops(view, view.in(ContextAttentionGrad::kQ)), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_grad(const NodeView& view, Axis axis) {
  const auto& attrs = view.attrs<ContextAttentionAttrs>();
  if (axis == attrs.axis && attrs.ranks == 1) {
    const bool ring = attrs.ring_step >= 0;
    return {{{kS0, kS0, kS2, kS0, ring ? kS0 : kR, kS0, kS0, kR, kR}, {kS0, ring ? kS0 : kP, kP}}};
  }
  return {{{kS0, kS0, kS0, kS0, kS0, kS0, kS0, kR, kR}, {kS0, kS0, kP}},
          {{kS1, kS1, kS1, kS1, kS1, kR, kR, kS0, kR}, {kS1, kS1, kS0}}};
}

// --- the ring

std::vector<ValueSpec> infer_merge(const NodeView& view) {
  using In = MergeAttention;
  const auto& attrs = view.attrs<ContextAttentionAttrs>();
  const Value &out = view.in(In::kOut), &lse = view.in(In::kLse);
  require(view,
          out.shape.rank() == 2 && view.in(In::kMoreOut).shape == out.shape &&
              view.in(In::kMoreOut).dtype == out.dtype && view.in(In::kMoreLse).shape == lse.shape &&
              lse.shape == Shape{out.shape[0] / attrs.sequence_length, out.shape[1] / attrs.head_dim,
                                 attrs.sequence_length},
          "both must be the same rows and heads");
  require(view, view.has(In::kQ) == view.has(In::kKv) && view.has(In::kQ) == view.has(In::kRank),
          "queries, keys and the rank block come together");
  return {{"out", out.dtype, out.shape}, {"lse", DType::kF32, lse.shape}};
}

Cost cost_merge(const NodeView& view) {
  const Value& out = view.in(MergeAttention::kOut);
  const auto elements = static_cast<double>(out.shape.elements());
  return {3 * elements, 3 * static_cast<double>(out.bytes())};
}

std::vector<PlacementOption> placements_merge(const NodeView& view, Axis axis) {
  const auto& attrs = view.attrs<ContextAttentionAttrs>();
  if (axis == attrs.axis && attrs.ranks == 1)
    return {{{kS0, kS2, kS0, kS2, kS0, kS0, kS0, kS0, kR, kR}, {kS0, kS2}}};
  return {{{kS0, kS0, kS0, kS0, kS0, kS0, kS0, kS0, kR, kR}, {kS0, kS0}},
          {{kS1, kS1, kS1, kS1, kS1, kS1, kR, kR, kR, kS0}, {kS1, kS1}}};
}

// The keys and values go round once more. The gradient of each rank's goes with them: every rank adds its
// share, and one place behind the last it is back.
void gradient_merge(GradientBuilder& builder, const Node& node) {
  using In = MergeAttention;
  Graph& graph = builder.graph();
  auto attrs = node.attrs.as<ContextAttentionAttrs>();
  const ValueId q = node.inputs[In::kQ];
  STRATA_CHECK(q != kNone, "only the last merge of a ring has a gradient");
  const ValueId dout = builder.gradient_of(node.outputs[In::kMergedOut]);
  const int64_t steps = graph.mesh().size(attrs.axis);
  ValueId kv = node.inputs[In::kKv], dq = kNone, dkv = kNone;
  for (attrs.ring_step = 0; attrs.ring_step < steps; ++attrs.ring_step) {
    const ValueId now = kv;
    if (attrs.ring_step + 1 < steps) kv = graph::shift_shards(graph, {kv}, attrs.axis, 1)[0];
    const auto gradients =
        graph.add_node(kContextAttentionGrad,
                       {dout, node.outputs[In::kMergedOut], node.outputs[In::kMergedLse], q, now,
                        node.inputs[In::kKvBegin], node.inputs[In::kKvEnd], kNone, node.inputs[In::kRank]},
                       attrs);
    const ValueId more_dq = gradients[ContextAttentionGrad::kDq],
                  more_dkv = gradients[ContextAttentionGrad::kDkv];
    dq = dq == kNone ? more_dq : graph::add_sum(graph, dq, more_dq);
    dkv = dkv == kNone ? more_dkv : graph::add_sum(graph, dkv, more_dkv);
    dkv = graph::shift_shards(graph, {dkv}, attrs.axis, 1)[0];
  }
  builder.add_gradient(q, dq);
  builder.add_gradient(node.inputs[In::kKv], dkv);
  add_sink_gradient(builder, node.inputs[In::kSinks],
                    {dout, node.outputs[In::kMergedOut], node.outputs[In::kMergedLse]},
                    {attrs.head_dim, attrs.sequence_length});
}

}  // namespace

const OpDef kSplitQkv{"split_qkv", "elementwise", infer_split, cost_copy, placements_split, gradient_split};
const OpDef kJoinQkv{"join_qkv", "elementwise", infer_join, cost_copy, placements_join, gradient_join};
const OpDef kContextAttention{.name = "context_attention",
                              .family = "attention",
                              .infer = infer,
                              .cost = cost,
                              .placements = placements,
                              .gradient = gradient,
                              .localize = localize};
const OpDef kContextAttentionGrad{.name = "context_attention_grad",
                                  .family = "attention_grad",
                                  .infer = infer_grad,
                                  .cost = cost_grad,
                                  .placements = placements_grad,
                                  .localize = localize};

const OpDef kMergeAttention{.name = "merge_attention",
                            .family = "elementwise",
                            .infer = infer_merge,
                            .cost = cost_merge,
                            .placements = placements_merge,
                            .gradient = gradient_merge,
                            .in_place = {{0, 0}, {1, 1}},
                            .localize = localize};

QueriesKeysValues split_qkv(Graph& graph, ValueId qkv) {
  const auto parts = graph.add_node(kSplitQkv, {qkv});
  return {parts[SplitQkv::kQ], parts[SplitQkv::kKv]};
}

namespace {

ContextAttentionAttrs attrs_of(const AttentionAttrs& attrs, int64_t kv_length) {
  return {.head_dim = attrs.head_dim,
          .sequence_length = attrs.sequence_length,
          .kv_length = kv_length,
          .scale = attrs.scale,
          .window = attrs.window,
          .softcap = attrs.softcap,
          .causal = attrs.causal,
          .bias_zero = attrs.bias_zero,
          .axis = Axis::kContext};
}

}  // namespace

ValueId context_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin, int64_t kv_length,
                          const AttentionOptions& options) {
  return graph.add_node(
      kContextAttention,
      {q, kv, kv_begin, options.kv_end, options.bias, graph::rank_block(graph), options.sinks},
      attrs_of(options.attrs, kv_length))[0];
}

ValueId ring_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin,
                       const AttentionOptions& options) {
  ContextAttentionAttrs attrs = attrs_of(options.attrs, options.attrs.sequence_length);
  const ValueId rank = graph::rank_block(graph);
  const int64_t steps = graph.mesh().size(Axis::kContext);
  STRATA_CHECK(steps > 1, "a ring of one rank");
  std::vector<ValueId> merged;  // out and lse
  ValueId coming = kv;
  for (attrs.ring_step = 0; attrs.ring_step < steps; ++attrs.ring_step) {
    const ValueId now = coming;
    const bool last = attrs.ring_step + 1 == steps;
    if (!last) coming = graph::shift_shards(graph, {now}, Axis::kContext, 1)[0];
    const ValueId sinks = attrs.ring_step == 0 ? options.sinks : kNone;  // they count once
    const auto part =
        graph.add_node(kContextAttention, {q, now, kv_begin, options.kv_end, kNone, rank, sinks}, attrs);
    if (merged.empty()) {
      merged = part;
      continue;
    }
    std::vector<ValueId> inputs{merged[0], merged[1], part[0], part[1]};
    // What the gradient of all steps is made of.
    for (const ValueId id : {q, kv, kv_begin, options.kv_end, rank, options.sinks})
      inputs.push_back(last ? id : kNone);
    merged = graph.add_node(kMergeAttention, std::move(inputs), attrs);
  }
  return merged[0];
}

}  // namespace strata::ops
