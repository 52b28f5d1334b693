#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

void require_segments(const NodeView& view, const Value& qkv) {
  require(view, qkv.segments.size() == 3, "qkv must have the parts [q | k | v]");
  const int64_t head_dim = view.attrs().integer("head_dim");
  require(view, qkv.segments[1] == qkv.segments[2], "k and v must be as wide as each other");
  require(view, qkv.segments[0] % head_dim == 0 && qkv.segments[1] % head_dim == 0,
          "q, k and v must be whole heads");
  require(view, qkv.segments[0] % qkv.segments[1] == 0,
          "the query heads must be a multiple of the key-value heads");
}

// --- rope

std::vector<ValueSpec> infer_rope(const NodeView& view) {
  require_segments(view, view.in(0));
  const int64_t head_dim = view.attrs().integer("head_dim");
  require(view, head_dim % 2 == 0, "rotary embedding needs an even head size");
  require(view,
          view.in(1).shape.rank() == 3 && view.in(1).shape[1] * 2 <= head_dim && view.in(1).shape[2] == 2,
          "the table must be [positions, rotary_dim / 2, 2]");
  require(view, view.in(2).shape == Shape{view.in(0).shape[0]}, "there must be one position a token");
  return {{"qkv", view.in(0).dtype, view.in(0).shape, view.in(0).segments}};
}

Cost cost_rope(const NodeView& view) {
  const Value& qkv = view.in(0);
  const double share = 1.0 - static_cast<double>(qkv.segments[2]) / static_cast<double>(qkv.shape[1]);
  const double elements = static_cast<double>(qkv.shape.elements()) * share;  // v passes untouched
  return {3 * elements, 2 * elements * static_cast<double>(size_of(qkv.dtype))};
}

// Sharded by heads: every part of qkv gives its share.
std::vector<PlacementOption> placements_rope(const NodeView&) {
  return {{{kS0, kR, kS0}, {kS0}}, {{kS1, kR, kR}, {kS1}}};
}

void gradient_rope(GradientBuilder& builder, const Node& node) {
  Attrs attrs = node.attrs;
  attrs.set("inverse", 1 - node.attrs.integer("inverse"));
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  builder.add_gradient(node.inputs[0],
                       builder.graph().add_node(kRope, {dy, node.inputs[1], node.inputs[2]}, attrs)[0]);
}

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

// Two products of [T, hd] with [hd, T], half of which the causal mask needs.
double causal_product_flops(const NodeView& view, const Value& qkv) {
  const double width = static_cast<double>(qkv.segments[0]);
  return static_cast<double>(qkv.shape[0]) * static_cast<double>(view.attrs().integer("sequence_length")) *
         width;
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

// --- rope_table: () → table[positions, rotary_dim / 2, 2]

std::vector<ValueSpec> infer_table(const NodeView& view) {
  return {
      {"table", DType::kF32, {view.attrs().integer("positions"), view.attrs().integer("rotary_dim") / 2, 2}}};
}

Cost cost_table(const NodeView& view) {
  return {0, static_cast<double>(view.out(0).bytes())};
}

std::vector<PlacementOption> placements_table(const NodeView&) {
  return {};
}

}  // namespace

const OpDef kRopeTable{"rope_table", "setup", infer_table, cost_table, placements_table};
const OpDef kRope{"rope", "elementwise", infer_rope, cost_rope, placements_rope, gradient_rope, {{0, 0}}};
const OpDef kAttention{"attention",    "attention",          infer_attention,
                       cost_attention, placements_attention, gradient_attention};
const OpDef kAttentionGrad{"attention_grad", "attention_grad", infer_attention_grad, cost_attention_grad,
                           placements_attention_grad};
const OpDef kCachedAttention{"cached_attention", "attention", infer_cached, cost_cached, placements_cached};

ValueId rope_table(Graph& graph, int64_t positions, int64_t rotary_dim, const RopeScaling& rope) {
  graph::Value table;
  table.name = "rope_table";
  table.shape = {positions, rotary_dim / 2, 2};
  table.role = graph::Role::kConstant;
  const ValueId id = graph.add_value(std::move(table));
  graph.set_phase(graph::Phase::kSetup);
  graph.add_node_into(kRopeTable, {}, {id},
                      {{"positions", positions},
                       {"rotary_dim", rotary_dim},
                       {"theta", rope.theta},
                       {"scaling", static_cast<int64_t>(rope.kind)},
                       {"factor", rope.factor},
                       {"low_frequency_factor", rope.low_frequency_factor},
                       {"high_frequency_factor", rope.high_frequency_factor},
                       {"original_positions", rope.original_positions}});
  graph.set_phase(graph::Phase::kForward);
  return id;
}

ValueId rope(Graph& graph, ValueId qkv, ValueId table, ValueId positions, int64_t head_dim) {
  return graph.add_node(kRope, {qkv, table, positions}, {{"head_dim", head_dim}, {"inverse", int64_t{0}}})[0];
}

ValueId attention(Graph& graph, ValueId qkv, ValueId kv_begin, int64_t head_dim, int64_t sequence_length,
                  double scale) {
  return graph.add_node(kAttention, {qkv, kv_begin},
                        {{"head_dim", head_dim}, {"sequence_length", sequence_length}, {"scale", scale}})[0];
}

ValueId cached_attention(Graph& graph, ValueId qkv, const CacheValues& cache, int64_t head_dim,
                         int64_t sequence_length, double scale) {
  const Value& rows = graph.value(qkv);
  graph::Value attended;
  attended.name = rows.name + ".attended";
  attended.dtype = rows.dtype;
  attended.shape = {rows.shape[0], rows.segments.empty() ? rows.shape[1] : rows.segments[0]};
  const ValueId out = graph.add_value(std::move(attended));
  graph.add_node_into(kCachedAttention, {qkv, cache.keys, cache.values, cache.position, cache.slot},
                      {out, cache.keys, cache.values},
                      {{"head_dim", head_dim}, {"sequence_length", sequence_length}, {"scale", scale}});
  return out;
}

}  // namespace strata::ops
