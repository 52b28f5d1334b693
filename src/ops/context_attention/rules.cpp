#include "ops/attention/rules.h"

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/context_attention/context_attention.h"

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
  if (value_dim != 0) to("value_dim", value_dim);
  to("axis", name_of(axis));
  if (ranks != 1) to("ranks", ranks);
  if (ring_step >= 0) to("ring_step", ring_step);
  if (greatest_parts != 0) to("greatest_parts", greatest_parts);
}

const OpDef SplitQkv::def = define<SplitQkv>({
    .name = "split_qkv",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<SplitQkv> {
      const Value& qkv = *node.in.qkv;
      require(node, qkv.shape.rank() == 2 && qkv.segments.size() == 3 && qkv.segments[1] == qkv.segments[2],
              "qkv must be [N, q | k | v], v as wide as k");
      const int64_t rows = qkv.shape[0], k = qkv.segments[1];
      return {.q = {qkv.dtype, {rows, qkv.segments[0]}}, .kv = {qkv.dtype, {rows, 2 * k}, {k, k}}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<SplitQkv> {
      return {{{.qkv = kS0}, {.q = kS0, .kv = kS0}}, {{.qkv = kS1}, {.q = kS1, .kv = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dq = builder.gradient_of(node.out.q), dkv = builder.gradient_of(node.out.kv);
          builder.add_gradient(node.in.qkv, add<JoinQkv>(builder.graph(), {.q = dq, .kv = dkv}).qkv);
        },
});

const OpDef JoinQkv::def = define<JoinQkv>({
    .name = "join_qkv",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<JoinQkv> {
      const Value &q = *node.in.q, &kv = *node.in.kv;
      require(node,
              q.shape.rank() == 2 && kv.shape.rank() == 2 && q.shape[0] == kv.shape[0] &&
                  q.dtype == kv.dtype && kv.segments.size() == 2 && kv.segments[0] == kv.segments[1],
              "queries and [k | v] must have equal numbers of rows and one dtype");
      const int64_t k = kv.segments[0];
      return {.qkv = {q.dtype, {q.shape[0], q.shape[1] + 2 * k}, {q.shape[1], k, k}}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<JoinQkv> {
      return {{{.q = kS0, .kv = kS0}, {.qkv = kS0}}, {{.q = kS1, .kv = kS1}, {.qkv = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto parts = add<SplitQkv>(builder.graph(), {.qkv = builder.gradient_of(node.out.qkv)});
          builder.add_gradient(node.in.q, parts.q);
          builder.add_gradient(node.in.kv, parts.kv);
        },
});

namespace {

template <typename Op>
void require_context(const View<Op>& node) {
  const auto& attrs = node.attrs;
  const Value &q = *node.in.q, &kv = *node.in.kv;
  const int64_t length = attrs.sequence_length, keys = attrs.kv_length;
  const bool biased = node.in.bias.present(), ring = attrs.ring_step >= 0;
  require_queries_keys(node);
  require(node, length % 2 == 0 && q.shape[0] % length == 0 && q.shape[0] / length * keys == kv.shape[0],
          "queries and keys must be equal numbers of sequences, each of queries in two equal chunks");
  require_key_ranges(node, q.shape[0], "kv_begin and kv_end must have one entry a query");
  require(node, (!attrs.causal && !biased && !ring) || length * (ring ? 1 : attrs.ranks) == keys,
          "queries that have a place among the keys must be the rank's share of them");
  require(node, !ring || !biased, "keys that come by take no bias");
  require_bias(node, q.shape[1] / attrs.head_dim, keys);
  require_rank_block(node);
}

// The batch; heads; and, on the axis that shares them, rows, against whole keys or those of the same rows.
template <typename Op>
Splits<Op> context_splits(const View<Op>& node, Axis axis) {
  Splits<Op> splits = by_sequences_and_heads<Op>();
  if (axis != node.attrs.axis || node.attrs.ranks != 1) return splits;
  graph::Split<Op> rows = splits.front();
  const bool ring = node.attrs.ring_step >= 0;
  rows.in.kv = ring ? kS0 : kR;
  if constexpr (requires { rows.in.lse; }) rows.in.lse = kS2;
  if constexpr (requires { rows.in.more_lse; }) rows.in.more_lse = kS2;
  if constexpr (requires { rows.out.lse; }) rows.out.lse = kS2;
  if constexpr (requires { rows.out.dkv; }) rows.out.dkv = ring ? kS0 : kP;
  return {rows};
}

// The rows of a rank, in two chunks, see as many keys on average as all rows. `of_keys` and `of_values`: as
// attention_cost() of ops/attention.
template <typename Op>
Cost context_cost(const View<Op>& node, double of_keys, double of_values) {
  const auto& attrs = node.attrs;
  const auto length = static_cast<double>(attrs.kv_length), window = static_cast<double>(attrs.window);
  double keys = length;
  if (attrs.causal) keys = window > 0 && window < length ? window * (1 - window / length / 2) : length / 2;
  const Shape& q = node.in.q->shape;
  const double width =
      of_keys * static_cast<double>(attrs.head_dim) + of_values * static_cast<double>(attrs.size_of_value());
  return {2.0 * static_cast<double>(q.elements() / attrs.head_dim) * keys * width,
          graph::streamed_bytes(node.untyped())};
}

template <typename Op>
ContextAttentionAttrs localize_context(const View<Op>& node) {
  ContextAttentionAttrs attrs = localize_ranks(node);
  attrs.sequence_length /= attrs.ranks;
  if (attrs.ring_step >= 0) attrs.kv_length /= attrs.ranks;
  attrs.greatest_parts = std::min<int64_t>(attrs.greatest_parts, 1);
  return attrs;
}

ContextAttentionAttrs context_attrs(const AttentionAttrs& attrs, int64_t kv_length) {
  return {.head_dim = attrs.head_dim,
          .sequence_length = attrs.sequence_length,
          .kv_length = kv_length,
          .scale = attrs.scale,
          .window = attrs.window,
          .softcap = attrs.softcap,
          .causal = attrs.causal,
          .bias_zero = attrs.bias_zero,
          .value_dim = attrs.value_dim,
          .axis = Axis::kContext};
}

}  // namespace

const OpDef ContextAttention::def = define<ContextAttention>({
    .name = "context_attention",
    .family = "attention",
    .infer = [](const auto& node) -> Outputs<ContextAttention> {
      require_context(node);
      const Value& q = *node.in.q;
      if (node.in.sinks)
        require(node,
                node.in.sinks->shape == Shape{q.shape[1] / node.attrs.head_dim} && node.attrs.ring_step <= 0,
                "sinks must be f32[heads], and in a ring they count once");
      return attended_rows<ContextAttention>(q, node.attrs);
    },
    .cost = [](const auto& node) { return context_cost(node, 1, 1); },
    .placements = context_splits<ContextAttention>,
    .gradient = add_attention_gradient<ContextAttentionGrad>,
    .localize = localize_context,
});

const OpDef ContextAttentionGrad::def = define<ContextAttentionGrad>({
    .name = "context_attention_grad",
    .family = "attention_grad",
    .infer = [](const auto& node) -> Outputs<ContextAttentionGrad> {
      require_context(node);
      return {.dq = Spec::like(*node.in.q),
              .dkv = Spec::like(*node.in.kv),
              .dbias = node.in.bias ? Spec{DType::kF32, node.in.bias->shape} : Spec::none()};
    },
    .cost = [](const auto& node) { return context_cost(node, 3, 2); },
    .placements = context_splits<ContextAttentionGrad>,
    .localize = localize_context,
});

const OpDef MergeAttention::def = define<MergeAttention>({
    .name = "merge_attention",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<MergeAttention> {
      const auto& in = node.in;
      const auto& attrs = node.attrs;
      const Value &out = *in.out, &lse = *in.lse;
      require(node,
              out.shape.rank() == 2 && in.more_out->shape == out.shape && in.more_out->dtype == out.dtype &&
                  in.more_lse->shape == lse.shape && out.shape[1] % attrs.size_of_value() == 0 &&
                  lse.shape == Shape{out.shape[0] / attrs.sequence_length,
                                     out.shape[1] / attrs.size_of_value(), attrs.sequence_length},
              "both must be the same rows and heads");
      require(node, in.q.present() == in.kv.present() && in.q.present() == in.rank.present(),
              "queries, keys and the per-rank constants come together");
      return {.out = {out.dtype, out.shape}, .lse = {DType::kF32, lse.shape}};
    },
    .cost = [](const auto& node) -> Cost {
      const Value& out = *node.in.out;
      return {3 * static_cast<double>(out.shape.elements()), 3 * static_cast<double>(out.bytes())};
    },
    .placements = context_splits<MergeAttention>,
    // The keys and values go round once more. The gradient of each rank's goes with them: every rank adds its
    // share, and one place after the last it is back.
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& in = node.in;
          Graph& graph = builder.graph();
          ContextAttentionAttrs attrs = node.attrs;
          STRATA_CHECK(in.q.present(), "only the last merge of a ring has a gradient");
          const ValueId dout = builder.gradient_of(node.out.out);
          const int64_t steps = graph.mesh().size(attrs.axis);
          ValueId kv = in.kv, dq = kNone, dkv = kNone;
          for (attrs.ring_step = 0; attrs.ring_step < steps; ++attrs.ring_step) {
            const ValueId now = kv;
            if (attrs.ring_step + 1 < steps) kv = graph::shift_shards(graph, {kv}, attrs.axis, 1)[0];
            const auto more = add<ContextAttentionGrad>(graph,
                                                        {.dout = dout,
                                                         .out = node.out.out,
                                                         .lse = node.out.lse,
                                                         .q = in.q,
                                                         .kv = now,
                                                         .kv_begin = in.kv_begin,
                                                         .kv_end = in.kv_end,
                                                         .rank = in.rank},
                                                        attrs);
            dq = dq == kNone ? more.dq : graph::add_sum(graph, dq, more.dq);
            dkv = dkv == kNone ? more.dkv : graph::add_sum(graph, dkv, more.dkv);
            dkv = graph::shift_shards(graph, {dkv}, attrs.axis, 1)[0];
          }
          builder.add_gradient(in.q, dq);
          builder.add_gradient(in.kv, dkv);
          add_sink_gradient(builder, in.sinks, {dout, node.out.out, node.out.lse},
                            {attrs.size_of_value(), attrs.sequence_length});
        },
    .in_place = {{"out", "out"}, {"lse", "lse"}},
    .localize = localize_context,
});

AttendedIds context_attended(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin, int64_t kv_length,
                             const AttentionOptions& options) {
  ContextAttentionAttrs attrs = context_attrs(options.attrs, kv_length);
  attrs.greatest_parts = parts_of_greatest(graph, q, options);
  const auto made = add<ContextAttention>(graph,
                                          {.q = q,
                                           .kv = kv,
                                           .kv_begin = kv_begin,
                                           .kv_end = options.kv_end,
                                           .bias = options.bias,
                                           .rank = graph::rank_block(graph),
                                           .sinks = options.sinks},
                                          attrs);
  keep_greatest(graph, made.greatest, options.greatest);
  return {made.out, made.lse};
}

ValueId context_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin, int64_t kv_length,
                          const AttentionOptions& options) {
  return context_attended(graph, q, kv, kv_begin, kv_length, options).out;
}

ValueId ring_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin,
                       const AttentionOptions& options) {
  ContextAttentionAttrs attrs = context_attrs(options.attrs, options.attrs.sequence_length);
  const ValueId rank = graph::rank_block(graph);
  const int64_t steps = graph.mesh().size(Axis::kContext), parts = parts_of_greatest(graph, q, options);
  STRATA_CHECK(steps > 1, "a ring of one rank");
  graph::OutIds<MergeAttention> merged;
  ValueId coming = kv;
  for (attrs.ring_step = 0; attrs.ring_step < steps; ++attrs.ring_step) {
    const ValueId now = coming;
    const bool first = attrs.ring_step == 0, last = attrs.ring_step + 1 == steps;
    if (!last) coming = graph::shift_shards(graph, {now}, Axis::kContext, 1)[0];
    attrs.greatest_parts = parts;
    const auto part = add<ContextAttention>(graph,
                                            {.q = q,
                                             .kv = now,
                                             .kv_begin = kv_begin,
                                             .kv_end = options.kv_end,
                                             .rank = rank,
                                             .sinks = first ? options.sinks : kNone},  // they count once
                                            attrs);
    keep_greatest(graph, part.greatest, options.greatest);
    attrs.greatest_parts = 0;  // merges find nothing
    if (first) {
      merged = {.out = part.out, .lse = part.lse};
      continue;
    }
    graph::InIds<MergeAttention> in{
        .out = merged.out, .lse = merged.lse, .more_out = part.out, .more_lse = part.lse};
    if (last) {  // inputs of the gradient of all steps
      in.q = q;
      in.kv = kv;
      in.kv_begin = kv_begin;
      in.kv_end = options.kv_end;
      in.rank = rank;
      in.sinks = options.sinks;
    }
    const auto both = add<MergeAttention>(graph, in, attrs);
    merged = {.out = both.out, .lse = both.lse};
  }
  return merged.out;
}

}  // namespace strata::ops
