#include <algorithm>

#include "base/error.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {

void add_sink_gradient(GradientBuilder& builder, ValueId sinks, const AttendedRows& rows,
                       const SinkGradAttrs& attrs) {
  if (sinks == kNone) return;
  if (!builder.is_parameter(sinks)) {  // a rank's part of them
    builder.add_gradient(
        sinks, builder.graph().add_node(kSinkGrad, {rows.dout, rows.out, rows.lse, sinks}, attrs)[0]);
    return;
  }
  builder.weight_grad();
  builder.graph().add_node_into(kSinkGrad, {rows.dout, rows.out, rows.lse, sinks},
                                {builder.parameter_gradient(sinks)}, attrs);
}

namespace {

// --- attention

// The bias, where input `bias` is one, for the distances that rows of `keys` keys have.
void require_bias(const NodeView& view, int bias, int64_t heads, int64_t keys) {
  if (!view.has(bias)) return;
  const auto& attrs = view.attrs<AttentionAttrs>();
  const Value& table = view.in(bias);
  require(view, table.dtype == DType::kF32 && table.shape.rank() == 2 && table.shape[0] == heads,
          "the bias must be f32[heads, distances]");
  const int64_t window = attrs.window, zero = attrs.bias_zero;
  const int64_t back = (window > 0 ? std::min(window, keys) : keys) - 1;
  const int64_t ahead = attrs.causal ? 0 : keys - 1;
  require(view, zero >= back && zero + ahead < table.shape[1],
          "the bias must have an entry for every distance of a key from its query");
  require(view, attrs.softcap == 0, "capped scores take no bias: leave out one of the two");
}

void require_sinks(const NodeView& view, int sinks, int64_t heads) {
  if (!view.has(sinks)) return;
  require(view, view.in(sinks).dtype == DType::kF32 && view.in(sinks).shape == Shape{heads},
          "the sinks must be f32[heads]");
}

std::vector<ValueSpec> infer_attention(const NodeView& view) {
  const Value& qkv = view.in(Attention::kQkv);
  const auto& attrs = view.attrs<AttentionAttrs>();
  require_segments(view, qkv, attrs.head_dim, attrs.value_dim);
  require(view, qkv.shape[0] % attrs.sequence_length == 0, "the tokens must be whole sequences");
  const bool causal = attrs.causal;
  for (const int i : {Attention::kKvBegin, Attention::kKvEnd}) {
    if (view.has(i))
      require(view, view.in(i).shape == Shape{qkv.shape[0]},
              "kv_begin and kv_end must have one entry a token");
  }
  require(view, !causal || !view.has(Attention::kKvEnd), "causal rows end at themselves: leave out kv_end");
  require(view, !attrs.chunked, "keys of whole sequences begin where kv_begin says: leave out chunks");
  require(view, causal || attrs.window == 0, "a window counts keys backwards: it needs causal attention");
  require_bias(view, Attention::kBias, qkv.segments[0] / attrs.head_dim, attrs.sequence_length);
  const int64_t heads = qkv.segments[0] / attrs.head_dim;
  require_sinks(view, Attention::kSinks, heads);
  const int64_t length = attrs.sequence_length;
  return {{"out", qkv.dtype, {qkv.shape[0], heads * attrs.size_of_value()}},
          {"lse", DType::kF32, {qkv.shape[0] / length, heads, length}}};
}

// Products of [T, hd] with [hd, T] and [T, value size] with its like, so many of each. Half of them the
// causal mask needs; a window leaves the rows that lie further in than it with its width of keys.
double product_flops(const NodeView& view, const Value& qkv, double of_keys, double of_values) {
  const auto& attrs = view.attrs<AttentionAttrs>();
  const auto length = static_cast<double>(attrs.sequence_length);
  const auto window = static_cast<double>(attrs.window);
  double keys = window > 0 && window < length ? window * (2 - window / length) : length;
  if (!attrs.causal) keys *= 2;
  const double width =
      of_keys * static_cast<double>(attrs.head_dim) + of_values * static_cast<double>(attrs.size_of_value());
  const auto heads = static_cast<double>(qkv.segments[0] / attrs.head_dim);
  return static_cast<double>(qkv.shape[0]) * keys * heads * width;
}

Cost cost_attention(const NodeView& view) {
  return {product_flops(view, view.in(Attention::kQkv), 1, 1), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_attention(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0, kR, kR}, {kS0, kS0}}, {{kS1, kR, kR, kS0, kS0}, {kS1, kS1}}};
}

void gradient_attention(GradientBuilder& builder, const Node& node) {
  const ValueId dout = builder.gradient_of(node.outputs[Attention::kOut]);
  const ValueId qkv = node.inputs[Attention::kQkv], begin = node.inputs[Attention::kKvBegin],
                end = node.inputs[Attention::kKvEnd], bias = node.inputs[Attention::kBias];
  const auto gradients = builder.graph().add_node(
      kAttentionGrad,
      {dout, node.outputs[Attention::kOut], node.outputs[Attention::kLse], qkv, begin, end, bias},
      node.attrs);
  builder.add_gradient(qkv, gradients[AttentionGrad::kDqkv]);
  if (bias != kNone) builder.add_gradient(bias, gradients[AttentionGrad::kDbias]);
  const auto& attrs = node.attrs.as<AttentionAttrs>();
  add_sink_gradient(builder, node.inputs[Attention::kSinks],
                    {dout, node.outputs[Attention::kOut], node.outputs[Attention::kLse]},
                    {attrs.size_of_value(), attrs.sequence_length});
}

// --- the gradient of sinks

std::vector<ValueSpec> infer_sink_grad(const NodeView& view) {
  const auto& attrs = view.attrs<SinkGradAttrs>();
  const Value &dout = view.in(SinkGrad::kDout), &lse = view.in(SinkGrad::kLse);
  const int64_t heads = dout.shape[1] / attrs.head_dim, length = attrs.sequence_length;
  require(view,
          dout.shape == view.in(SinkGrad::kOut).shape &&
              lse.shape == Shape{dout.shape[0] / length, heads, length},
          "the gradient must be as the rows that attention gave");
  require_sinks(view, SinkGrad::kSinks, heads);
  return {{"dsinks", DType::kF32, {heads}}};
}
Cost cost_sink_grad(const NodeView& view) {
  return streamed(view, 2);
}
// The batch; heads; and on the context axis the rows of every sequence.
std::vector<PlacementOption> placements_sink_grad(const NodeView&, Axis axis) {
  const Placement of_lse = axis == Axis::kContext ? Placement::sharded(2) : kS0;
  return {{{kS0, kS0, of_lse, kR}, {kP}}, {{kS1, kS1, kS1, kS0}, {kS0}}};
}
// A rank's rows of a sequence, where these are shared.
graph::Attributes localize_sink_grad(const NodeView& global) {
  auto attrs = global.attrs<SinkGradAttrs>();
  const ValueId lse = global.node.inputs[SinkGrad::kLse];
  if (global.graph.placement(lse, Axis::kContext) == Placement::sharded(2))
    attrs.sequence_length /= global.graph.mesh().size(Axis::kContext);
  return attrs;
}

std::vector<ValueSpec> infer_attention_grad(const NodeView& view) {
  const Value& qkv = view.in(AttentionGrad::kQkv);
  const bool biased = view.has(AttentionGrad::kBias);
  return {{"dqkv", qkv.dtype, qkv.shape, qkv.segments},
          {"dbias", DType::kF32, biased ? view.in(AttentionGrad::kBias).shape : Shape{}, {}, !biased}};
}

Cost cost_attention_grad(const NodeView& view) {
  // Scores again, dQ and dK; dP and dV.
  return {product_flops(view, view.in(AttentionGrad::kQkv), 3, 2), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_attention_grad(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0, kS0, kS0, kS0, kR}, {kS0, kP}}, {{kS1, kS1, kS1, kS1, kR, kR, kS0}, {kS1, kS0}}};
}

// --- cached attention: (qkv, key cache, value cache, position, slot, bias?, sinks?) → out, key cache, value
// cache

std::vector<ValueSpec> infer_cached(const NodeView& view) {
  const Value& qkv = view.in(CachedAttention::kQkv);
  const auto& attrs = view.attrs<AttentionAttrs>();
  require_segments(view, qkv, attrs.head_dim);
  require(view, attrs.value_dim == 0, "values in a cache are as wide as keys");
  const Value& cache = view.in(CachedAttention::kKeys);
  require(view, cache.shape.rank() == 3 && cache.shape[2] == qkv.segments[1] && cache.dtype == qkv.dtype,
          "the cache must be [slots, room, kv heads · head size] in qkv's dtype");
  const int64_t length = attrs.sequence_length;
  require(view, qkv.shape[0] % length == 0, "the tokens must be whole sequences");
  const Shape sequences{qkv.shape[0] / length};
  require(view, sequences[0] <= cache.shape[0], "every sequence must have a slot of the cache");
  require(view,
          view.in(CachedAttention::kPosition).shape == sequences &&
              view.in(CachedAttention::kSlot).shape == sequences,
          "there must be one position and one slot a sequence");
  require(view, !attrs.chunked || attrs.window > 0, "a chunk has the window's size");
  require(view, attrs.causal, "attention to a growing cache is causal");
  require_bias(view, CachedAttention::kBias, qkv.segments[0] / attrs.head_dim, cache.shape[1]);
  require_sinks(view, CachedAttention::kSinks, qkv.segments[0] / attrs.head_dim);
  return {{"out", qkv.dtype, {qkv.shape[0], qkv.segments[0]}},
          {"keys", cache.dtype, cache.shape},
          {"values", cache.dtype, cache.shape}};
}

Cost cost_cached(const NodeView& view) {
  const Value& cache = view.in(CachedAttention::kKeys);
  const double pairs = static_cast<double>(view.in(CachedAttention::kQkv).shape[0]) *
                       static_cast<double>(cache.shape[1]) *
                       static_cast<double>(view.in(CachedAttention::kQkv).segments[0]);
  const int64_t slots = view.in(CachedAttention::kPosition).shape[0];  // that are read
  const int64_t slot_bytes = cache.bytes() / cache.shape[0];
  return {4 * pairs, static_cast<double>(2 * slot_bytes * slots + view.in(CachedAttention::kQkv).bytes() +
                                         view.out(CachedAttention::kOut).bytes())};
}

std::vector<PlacementOption> placements_cached(const NodeView&, Axis) {
  const Placement by_head = Placement::sharded(2);
  return {{{kS1, by_head, by_head, kR, kR, kS0, kS0}, {kS1, by_head, by_head}}};
}

}  // namespace

const OpDef kAttention{"attention",    "attention",          infer_attention,
                       cost_attention, placements_attention, gradient_attention};
const OpDef kAttentionGrad{"attention_grad", "attention_grad", infer_attention_grad, cost_attention_grad,
                           placements_attention_grad};
const OpDef kSinkGrad{.name = "sink_grad",
                      .family = "elementwise",
                      .infer = infer_sink_grad,
                      .cost = cost_sink_grad,
                      .placements = placements_sink_grad,
                      .localize = localize_sink_grad};
const OpDef kCachedAttention{"cached_attention", "attention", infer_cached, cost_cached, placements_cached};

ValueId attention(Graph& graph, ValueId qkv, ValueId kv_begin, const AttentionOptions& options) {
  return graph.add_node(kAttention, {qkv, kv_begin, options.kv_end, options.bias, options.sinks},
                        options.attrs)[0];
}

ValueId cached_attention(Graph& graph, ValueId qkv, const CacheValues& cache,
                         const AttentionOptions& options) {
  STRATA_CHECK(options.kv_end == kNone, "cached attention is causal: it takes no kv_end");
  const Value& rows = graph.value(qkv);
  graph::Value attended;
  attended.name = rows.name + ".attended";
  attended.dtype = rows.dtype;
  attended.shape = {rows.shape[0], rows.segments.empty() ? rows.shape[1] : rows.segments[0]};
  const ValueId out = graph.add_value(std::move(attended));
  graph.add_node_into(
      kCachedAttention,
      {qkv, cache.keys, cache.values, cache.position, cache.slot, options.bias, options.sinks},
      {out, cache.keys, cache.values}, options.attrs);
  return out;
}

}  // namespace strata::ops
