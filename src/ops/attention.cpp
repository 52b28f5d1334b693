#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// --- attention

std::vector<ValueSpec> infer_attention(const NodeView& view) {
  const Value& qkv = view.in(0);
  require_segments(view, qkv);
  require(view, qkv.shape[0] % view.attrs().integer("sequence_length") == 0,
          "the tokens must be whole sequences");
  if (view.has(1))
    require(view, view.in(1).shape == Shape{qkv.shape[0]}, "kv_begin must have one entry a token");
  const int64_t heads = qkv.segments[0] / view.attrs().integer("head_dim");
  const int64_t length = view.attrs().integer("sequence_length");
  return {{"out", qkv.dtype, {qkv.shape[0], qkv.segments[0]}},
          {"lse", DType::kF32, {qkv.shape[0] / length, heads, length}}};
}

// Two products of [T, hd] with [hd, T], half of which the causal mask needs; a window leaves the rows that
// lie further in than it with its width of keys.
double causal_product_flops(const NodeView& view, const Value& qkv) {
  const auto length = static_cast<double>(view.attrs().integer("sequence_length"));
  const auto window = static_cast<double>(view.attrs().integer("window"));
  const double keys = window > 0 && window < length ? window * (2 - window / length) : length;
  return static_cast<double>(qkv.shape[0]) * keys * static_cast<double>(qkv.segments[0]);
}

Cost cost_attention(const NodeView& view) {
  return {2 * causal_product_flops(view, view.in(0)), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_attention(const NodeView&) {
  return {{{kS0, kS0}, {kS0, kS0}}, {{kS1, kR}, {kS1, kS1}}};
}

void gradient_attention(GradientBuilder& builder, const Node& node) {
  const ValueId dout = builder.gradient_of(node.outputs[0]);
  builder.add_gradient(node.inputs[0], builder.graph().add_node(kAttentionGrad,
                                                                {dout, node.outputs[0], node.outputs[1],
                                                                 node.inputs[0], node.inputs[1]},
                                                                node.attrs)[0]);
}

std::vector<ValueSpec> infer_attention_grad(const NodeView& view) {
  const Value& qkv = view.in(3);
  return {{"dqkv", qkv.dtype, qkv.shape, qkv.segments}};
}

Cost cost_attention_grad(const NodeView& view) {
  // Scores again, then dP, dV, dQ and dK.
  return {5 * causal_product_flops(view, view.in(3)), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_attention_grad(const NodeView&) {
  return {{{kS0, kS0, kS0, kS0, kS0}, {kS0}}, {{kS1, kS1, kS1, kS1, kR}, {kS1}}};
}

// --- cached attention: (qkv, key cache, value cache, position, slot) → out, key cache, value cache

std::vector<ValueSpec> infer_cached(const NodeView& view) {
  const Value& qkv = view.in(0);
  require_segments(view, qkv);
  const Value& cache = view.in(1);
  require(view, cache.shape.rank() == 3 && cache.shape[2] == qkv.segments[1] && cache.dtype == qkv.dtype,
          "the cache must be [slots, room, kv heads · head size] in qkv's dtype");
  const int64_t length = view.attrs().integer("sequence_length");
  require(view, qkv.shape[0] % length == 0, "the tokens must be whole sequences");
  const Shape sequences{qkv.shape[0] / length};
  require(view, sequences[0] <= cache.shape[0], "every sequence must have a slot of the cache");
  require(view, view.in(3).shape == sequences && view.in(4).shape == sequences,
          "there must be one position and one slot a sequence");
  return {{"out", qkv.dtype, {qkv.shape[0], qkv.segments[0]}},
          {"keys", cache.dtype, cache.shape},
          {"values", cache.dtype, cache.shape}};
}

Cost cost_cached(const NodeView& view) {
  const Value& cache = view.in(1);
  const double pairs = static_cast<double>(view.in(0).shape[0]) * static_cast<double>(cache.shape[1]) *
                       static_cast<double>(view.in(0).segments[0]);
  const int64_t slots = view.in(3).shape[0];  // that are read
  return {4 * pairs, static_cast<double>(2 * cache.bytes() / cache.shape[0] * slots + view.in(0).bytes() +
                                         view.out(0).bytes())};
}

std::vector<PlacementOption> placements_cached(const NodeView&) {
  const Placement by_head = Placement::sharded(2);
  return {{{kS1, by_head, by_head, kR, kR}, {kS1, by_head, by_head}}};
}

}  // namespace

const OpDef kAttention{"attention",    "attention",          infer_attention,
                       cost_attention, placements_attention, gradient_attention};
const OpDef kAttentionGrad{"attention_grad", "attention_grad", infer_attention_grad, cost_attention_grad,
                           placements_attention_grad};
const OpDef kCachedAttention{"cached_attention", "attention", infer_cached, cost_cached, placements_cached};

namespace {

Attrs attrs_of(const AttentionOptions& options) {
  return {{"head_dim", options.head_dim},
          {"sequence_length", options.sequence_length},
          {"scale", options.scale},
          {"window", options.window},
          {"softcap", options.softcap}};
}

}  // namespace

ValueId attention(Graph& graph, ValueId qkv, ValueId kv_begin, const AttentionOptions& options) {
  return graph.add_node(kAttention, {qkv, kv_begin}, attrs_of(options))[0];
}

ValueId cached_attention(Graph& graph, ValueId qkv, const CacheValues& cache,
                         const AttentionOptions& options) {
  const Value& rows = graph.value(qkv);
  graph::Value attended;
  attended.name = rows.name + ".attended";
  attended.dtype = rows.dtype;
  attended.shape = {rows.shape[0], rows.segments.empty() ? rows.shape[1] : rows.segments[0]};
  const ValueId out = graph.add_value(std::move(attended));
  graph.add_node_into(kCachedAttention, {qkv, cache.keys, cache.values, cache.position, cache.slot},
                      {out, cache.keys, cache.values}, attrs_of(options));
  return out;
}

}  // namespace strata::ops
