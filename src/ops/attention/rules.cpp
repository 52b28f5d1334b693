#include <algorithm>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/rules.h"
#include "ops/rules.h"

namespace strata::ops {

void require_segments(const NodeView& view, const Value& qkv, int64_t head_dim, int64_t value_dim) {
  require(view, qkv.segments.size() == 3, "qkv must have the parts [q | k | v]");
  require(view, qkv.segments[0] % head_dim == 0 && qkv.segments[1] % head_dim == 0,
          "q, k and v must be whole heads");
  require(view, qkv.segments[2] == qkv.segments[1] / head_dim * (value_dim > 0 ? value_dim : head_dim),
          "there must be as many heads of v as of k");
  require(view, qkv.segments[0] % qkv.segments[1] == 0,
          "the query heads must be a multiple of the key-value heads");
}

void add_sink_gradient(GradientBuilder& builder, ValueId sinks, const AttendedRows& rows,
                       const SinkGradAttrs& attrs) {
  if (sinks == kNone) return;
  const graph::InIds<SinkGrad> in{.dout = rows.dout, .out = rows.out, .lse = rows.lse, .sinks = sinks};
  if (!builder.is_parameter(sinks)) {  // a rank's part of them
    builder.add_gradient(sinks, add<SinkGrad>(builder.graph(), in, attrs).dsinks);
    return;
  }
  builder.weight_grad();
  add_into<SinkGrad>(builder.graph(), in, {.dsinks = builder.parameter_gradient(sinks)}, attrs);
}

namespace {

template <typename Op>
void require_sinks(const View<Op>& node, int64_t heads) {
  if (node.in.sinks) require(node, node.in.sinks->shape == Shape{heads}, "the sinks must be f32[heads]");
}

int64_t heads_of(const Value& qkv, const AttentionAttrs& attrs) {
  return qkv.segments[0] / attrs.head_dim;
}

// Matmuls of [T, hd] with [hd, T], and of [T, T] with [T, value size]: the number of each. The causal mask
// needs half of them; of a window, rows further in than its width have its width of keys.
template <typename Op>
Cost attention_cost(const View<Op>& node, double of_keys, double of_values) {
  const auto& attrs = node.attrs;
  const Value& qkv = *node.in.qkv;
  const auto length = static_cast<double>(attrs.sequence_length);
  const auto window = static_cast<double>(attrs.window);
  double keys = window > 0 && window < length ? window * (2 - window / length) : length;
  if (!attrs.causal) keys *= 2;
  const double width =
      of_keys * static_cast<double>(attrs.head_dim) + of_values * static_cast<double>(attrs.size_of_value());
  const auto heads = static_cast<double>(heads_of(qkv, attrs));
  return {static_cast<double>(qkv.shape[0]) * keys * heads * width, graph::streamed_bytes(node.untyped())};
}

}  // namespace

const OpDef Attention::def = define<Attention>({
    .name = "attention",
    .family = "attention",
    .infer = [](const auto& node) -> Outputs<Attention> {
      const Value& qkv = *node.in.qkv;
      const auto& attrs = node.attrs;
      const int64_t rows = qkv.shape[0], length = attrs.sequence_length;
      require_segments(node.untyped(), qkv, attrs.head_dim, attrs.value_dim);
      require(node, rows % length == 0, "the tokens must be whole sequences");
      require_key_ranges(node, rows, "kv_begin and kv_end must have one entry a token");
      require(node, !attrs.chunked, "keys of whole sequences begin at kv_begin: leave out chunks");
      const int64_t heads = heads_of(qkv, attrs);
      require_bias(node, heads, length);
      require_sinks(node, heads);
      return {.out = {qkv.dtype, {rows, heads * attrs.size_of_value()}},
              .lse = {DType::kF32, {rows / length, heads, length}},
              .greatest = spec_of_greatest(attrs, heads)};
    },
    .cost = [](const auto& node) { return attention_cost(node, 1, 1); },
    .placements = [](const auto&, Axis) { return by_sequences_and_heads<Attention>(); },
    .gradient = add_attention_gradient<AttentionGrad>,
    .localize =
        [](const auto& node) {
          AttentionAttrs attrs = node.attrs;
          attrs.greatest_parts = std::min<int64_t>(attrs.greatest_parts, 1);
          return attrs;
        },
});

const OpDef AttentionGrad::def = define<AttentionGrad>({
    .name = "attention_grad",
    .family = "attention_grad",
    .infer = [](const auto& node) -> Outputs<AttentionGrad> {
      return {.dqkv = Spec::like(*node.in.qkv),
              .dbias = node.in.bias ? Spec{DType::kF32, node.in.bias->shape} : Spec::none()};
    },
    // Scores again, dQ and dK; dP and dV.
    .cost = [](const auto& node) { return attention_cost(node, 3, 2); },
    .placements = [](const auto&, Axis) { return by_sequences_and_heads<AttentionGrad>(); },
});

const OpDef CachedAttention::def = define<CachedAttention>({
    .name = "cached_attention",
    .family = "attention",
    .infer = [](const auto& node) -> Outputs<CachedAttention> {
      const Value &qkv = *node.in.qkv, &cache = *node.in.keys;
      const auto& attrs = node.attrs;
      require_segments(node.untyped(), qkv, attrs.head_dim);
      require(node, attrs.value_dim == 0, "values in a cache are as wide as keys");
      require(node, cache.shape.rank() == 3 && cache.shape[2] == qkv.segments[1] && cache.dtype == qkv.dtype,
              "the cache must be [entries, capacity, kv heads · head size] in qkv's dtype");
      const Shape sequences = require_slots(node, qkv.shape[0], cache, "the tokens must be whole sequences");
      require(node, node.in.position->shape == sequences && node.in.slot->shape == sequences,
              "there must be one position and one cache entry per sequence");
      require(node, !attrs.chunked || attrs.window > 0, "a chunk has the window's size");
      require(node, attrs.causal, "attention to a growing cache is causal");
      require_bias(node, heads_of(qkv, attrs), cache.shape[1]);
      require_sinks(node, heads_of(qkv, attrs));
      return {.out = {qkv.dtype, {qkv.shape[0], qkv.segments[0]}},
              .keys = {cache.dtype, cache.shape},
              .values = {cache.dtype, cache.shape}};
    },
    .cost = [](const auto& node) -> Cost {
      const Value& qkv = *node.in.qkv;
      return cost_of_slots(*node.in.keys, node.in.position->shape[0], qkv.shape[0] * qkv.segments[0],
                           qkv.bytes() + node.out.out->bytes());
    },
    .placements = [](const auto&, Axis) -> Splits<CachedAttention> {
      return {
          {{.qkv = kS1, .keys = kS2, .values = kS2, .position = kR, .slot = kR, .bias = kS0, .sinks = kS0},
           {.out = kS1, .keys = kS2, .values = kS2}}};
    },
});

const OpDef SinkGrad::def = define<SinkGrad>({
    .name = "sink_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<SinkGrad> {
      const Shape &dout = node.in.dout->shape, &lse = node.in.lse->shape;
      const int64_t heads = dout[1] / node.attrs.head_dim, length = node.attrs.sequence_length;
      require(node, dout == node.in.out->shape && lse == Shape{dout[0] / length, heads, length},
              "the gradient must have the shape of attention's output");
      require_sinks(node, heads);
      return {.dsinks = {DType::kF32, {heads}}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
    // The batch; heads; and on the context axis the rows of every sequence.
    .placements = [](const auto&, Axis axis) -> Splits<SinkGrad> {
      const Placement of_lse = axis == Axis::kContext ? kS2 : kS0;
      return {{{.dout = kS0, .out = kS0, .lse = of_lse, .sinks = kR}, {.dsinks = kP}},
              {{.dout = kS1, .out = kS1, .lse = kS1, .sinks = kS0}, {.dsinks = kS0}}};
    },
    // A rank's rows of a sequence, where these are shared.
    .localize =
        [](const auto& node) {
          SinkGradAttrs attrs = node.attrs;
          if (node.graph.placement(node.in.lse, Axis::kContext) == kS2)
            attrs.sequence_length /= node.graph.mesh().size(Axis::kContext);
          return attrs;
        },
});

int64_t parts_of_greatest(const Graph& graph, ValueId q, const AttentionOptions& options) {
  if (options.greatest == nullptr) return 0;
  int64_t parts = 1;
  for (const Axis axis : graph::kAllAxes)
    if (graph.placement(q, axis) == kS0) parts *= graph.mesh().size(axis);
  return parts;
}

void keep_greatest(Graph& graph, ValueId found, GreatestScores* scores) {
  if (found == kNone) return;
  STRATA_CHECK(scores != nullptr, "greatest scores that no block wants");
  std::vector<ValueId>& outputs = graph.nodes().back().outputs;
  const auto place = std::find(outputs.begin(), outputs.end(), found);
  STRATA_CHECK(place != outputs.end(), "{} is not an output of the newest node", graph.value(found).name);
  if (scores->value != kNone) {
    *place = scores->value;
    return;
  }
  Value& value = graph.value(found);
  value.role = graph::Role::kMetric;
  value.producer = kNone;
  value.name = scores->name;
  scores->value = found;
}

AttendedIds attended(Graph& graph, ValueId qkv, ValueId kv_begin, const AttentionOptions& options) {
  AttentionAttrs attrs = options.attrs;
  attrs.greatest_parts = parts_of_greatest(graph, qkv, options);
  const auto made = add<Attention>(graph,
                                   {.qkv = qkv,
                                    .kv_begin = kv_begin,
                                    .kv_end = options.kv_end,
                                    .bias = options.bias,
                                    .sinks = options.sinks},
                                   attrs);
  keep_greatest(graph, made.greatest, options.greatest);
  return {made.out, made.lse};
}

ValueId attention(Graph& graph, ValueId qkv, ValueId kv_begin, const AttentionOptions& options) {
  return attended(graph, qkv, kv_begin, options).out;
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
  add_into<CachedAttention>(graph,
                            {.qkv = qkv,
                             .keys = cache.keys,
                             .values = cache.values,
                             .position = cache.position,
                             .slot = cache.slot,
                             .bias = options.bias,
                             .sinks = options.sinks},
                            {.out = out, .keys = cache.keys, .values = cache.values}, options.attrs);
  return out;
}

}  // namespace strata::ops
