#include "ops/attention/rules.h"
#include "base/error.h"
#include "ops/cross_attention/cross_attention.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_cross(const View<Op>& node) {
  const Value &q = *node.in.q, &kv = *node.in.kv;
  const auto& attrs = node.attrs;
  require_queries_keys(node);
  require(node,
          q.shape[0] % attrs.sequence_length == 0 &&
              q.shape[0] / attrs.sequence_length * attrs.encoder_length == kv.shape[0],
          "queries and keys must be whole sequences, the same number of each");
  require_key_ranges(node, q.shape[0], "kv_begin and kv_end must have one entry a query");
}

template <typename Op>
Cost cross_cost(const View<Op>& node, double products) {
  const double flops =
      2.0 * static_cast<double>(node.in.q->shape.elements()) * static_cast<double>(node.attrs.encoder_length);
  return {products * flops, graph::streamed_bytes(node.untyped())};
}

template <typename Op>
void require_cross_cache(const View<Op>& node, const Value& rows) {
  const Value& cache = *node.in.keys;
  require(node, cache.shape.rank() == 3 && cache.dtype == rows.dtype,
          "the cache must be [entries, capacity, kv heads · head size] in the activations' dtype");
}

CrossAttentionAttrs cross_attrs(const AttentionOptions& options) {
  STRATA_CHECK(options.attrs.window == 0 && options.bias == kNone,
               "attention to another sequence takes neither a window nor a bias");
  return {.head_dim = options.attrs.head_dim,
          .sequence_length = options.attrs.sequence_length,
          .scale = options.attrs.scale,
          .softcap = options.attrs.softcap};
}

}  // namespace

const OpDef CrossAttention::def = define<CrossAttention>({
    .name = "cross_attention",
    .family = "attention",
    .infer = [](const auto& node) -> Outputs<CrossAttention> {
      require_cross(node);
      return attended_rows<CrossAttention>(*node.in.q, node.attrs);
    },
    .cost = [](const auto& node) { return cross_cost(node, 2); },
    .placements = [](const auto&, Axis) { return by_sequences_and_heads<CrossAttention>(); },
    .gradient = add_attention_gradient<CrossAttentionGrad>,
});

const OpDef CrossAttentionGrad::def = define<CrossAttentionGrad>({
    .name = "cross_attention_grad",
    .family = "attention_grad",
    .infer = [](const auto& node) -> Outputs<CrossAttentionGrad> {
      require_cross(node);
      return {.dq = Spec::like(*node.in.q), .dkv = Spec::like(*node.in.kv)};
    },
    .cost = [](const auto& node) { return cross_cost(node, 5); },
    .placements = [](const auto&, Axis) { return by_sequences_and_heads<CrossAttentionGrad>(); },
});

const OpDef CachedCrossAttention::def = define<CachedCrossAttention>({
    .name = "cached_cross_attention",
    .family = "attention",
    .infer = [](const auto& node) -> Outputs<CachedCrossAttention> {
      const Value &q = *node.in.q, &cache = *node.in.keys;
      const int64_t head_dim = node.attrs.head_dim;
      require_cross_cache(node, q);
      require(node,
              q.shape.rank() == 2 && q.shape[1] % head_dim == 0 && cache.shape[2] % head_dim == 0 &&
                  q.shape[1] % cache.shape[2] == 0,
              "queries and cache must be whole heads, those of the cache a divisor of the query heads");
      const Shape sequences = require_slots(node, q.shape[0], cache, "the queries must be whole sequences");
      require(node, node.in.slot->shape == sequences && node.in.encoder_end->shape == sequences,
              "there must be one cache entry and one end per sequence");
      return {.out = {q.dtype, q.shape}};
    },
    .cost = [](const auto& node) -> Cost {
      const Value& q = *node.in.q;
      return cost_of_slots(*node.in.keys, node.in.slot->shape[0], q.shape.elements(),
                           q.bytes() + node.out.out->bytes());
    },
    .placements = [](const auto&, Axis) -> Splits<CachedCrossAttention> {
      return {{{.q = kS1, .keys = kS2, .values = kS2, .slot = kR, .encoder_end = kR}, {.out = kS1}}};
    },
});

const OpDef StoreCross::def = define<StoreCross>({
    .name = "store_cross",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<StoreCross> {
      const Value &kv = *node.in.kv, &cache = *node.in.keys;
      require_cross_cache(node, kv);
      require(node,
              kv.segments.size() == 2 && kv.segments[0] == cache.shape[2] && kv.segments[1] == cache.shape[2],
              "keys and values must be [M, k | v], each as wide as the cache");
      const int64_t sequences = node.in.slot->shape[0];
      require(node,
              sequences > 0 && kv.shape[0] % sequences == 0 && kv.shape[0] / sequences <= cache.shape[1],
              "the rows must be whole sequences, one per cache entry, within the cache's capacity");
      return {.keys = {cache.dtype, cache.shape}, .values = {cache.dtype, cache.shape}};
    },
    .cost = [](const auto& node) -> Cost {
      return {0, 2 * static_cast<double>(node.in.kv->bytes())};
    },
    .placements = [](const auto&, Axis) -> Splits<StoreCross> {
      return {{{.kv = kS1, .keys = kS2, .values = kS2, .slot = kR}, {.keys = kS2, .values = kS2}}};
    },
});

const OpDef DocumentEnds::def = define<DocumentEnds>({
    .name = "document_ends",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<DocumentEnds> {
      const Shape &q = node.in.q_begin->shape, &k = node.in.k_begin->shape;
      const auto& attrs = node.attrs;
      require(node, q.rank() == 1 && k.rank() == 1, "begins must be i32[N] and i32[M]");
      require(
          node,
          q[0] % attrs.sequence_length == 0 && q[0] / attrs.sequence_length * attrs.encoder_length == k[0],
          "both must be whole sequences, the same number of each");
      return {.ends = {DType::kI32, q}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis axis) -> Splits<DocumentEnds> {
      return {{{.q_begin = kS0, .k_begin = axis == node.attrs.shared_on ? kR : kS0}, {.ends = kS0}}};
    },
    .localize =
        [](const auto& node) {
          DocumentEndsAttrs attrs = node.attrs;
          if (attrs.shared_on) attrs.sequence_length /= node.graph.mesh().size(*attrs.shared_on);
          return attrs;
        },
});

ValueId cross_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin,
                        const AttentionOptions& options) {
  CrossAttentionAttrs attrs = cross_attrs(options);
  const int64_t sequences = graph.value(q).shape[0] / options.attrs.sequence_length;
  attrs.encoder_length = sequences > 0 ? graph.value(kv).shape[0] / sequences : 0;
  return add<CrossAttention>(graph, {.q = q, .kv = kv, .kv_begin = kv_begin, .kv_end = options.kv_end}, attrs)
      .out;
}

ValueId cached_cross_attention(Graph& graph, ValueId q, const CrossCache& cache, ValueId encoder_end,
                               const AttentionOptions& options) {
  STRATA_CHECK(options.kv_end == kNone,
               "cached cross-attention takes its ends from encoder_end: leave out kv_end");
  return add<CachedCrossAttention>(graph,
                                   {.q = q,
                                    .keys = cache.keys,
                                    .values = cache.values,
                                    .slot = cache.slot,
                                    .encoder_end = encoder_end},
                                   cross_attrs(options))
      .out;
}

ValueId document_ends(Graph& graph, ValueId q_begin, ValueId k_begin, int64_t sequences) {
  DocumentEndsAttrs attrs{graph.value(q_begin).shape[0] / sequences,
                          graph.value(k_begin).shape[0] / sequences};
  if (graph.placement(q_begin, Axis::kContext) != graph.placement(k_begin, Axis::kContext))
    attrs.shared_on = Axis::kContext;
  return add<DocumentEnds>(graph, {.q_begin = q_begin, .k_begin = k_begin}, attrs).ends;
}

}  // namespace strata::ops
