// Attention of one sequence to another, and what tells which part of it a row sees.
#include "base/error.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// Inputs q, kv, kv_begin?, kv_end? from `first` on.
void require_cross(const NodeView& view, int first) {
  const Value& q = view.in(first);
  const Value& kv = view.in(first + 1);
  const auto& attrs = view.attrs<CrossAttentionAttrs>();
  const int64_t head_dim = attrs.head_dim;
  require(view, q.shape.rank() == 2 && q.shape[1] % head_dim == 0,
          "the queries must be whole heads [N, h · hd]");
  require(
      view,
      kv.shape.rank() == 2 && kv.segments.size() == 2 && kv.segments[0] == kv.segments[1] &&
          kv.segments[0] % head_dim == 0 && q.shape[1] % kv.segments[0] == 0 && kv.dtype == q.dtype,
      "keys and values must be [M, k | v] of whole heads in the queries' dtype, as many of each, a divisor "
      "of the query heads");
  const int64_t length = attrs.sequence_length, encoder_length = attrs.encoder_length;
  require(view, q.shape[0] % length == 0 && q.shape[0] / length * encoder_length == kv.shape[0],
          "queries and keys must be whole sequences, as many of each");
  for (const int i : {first + 2, first + 3}) {
    if (view.has(i))
      require(view, view.in(i).shape == Shape{q.shape[0]}, "kv_begin and kv_end must have one entry a query");
  }
}

std::vector<ValueSpec> infer(const NodeView& view) {
  require_cross(view, CrossAttention::kQ);
  const Value& q = view.in(CrossAttention::kQ);
  const int64_t length = view.attrs<CrossAttentionAttrs>().sequence_length;
  return {{"out", q.dtype, q.shape},
          {"lse",
           DType::kF32,
           {q.shape[0] / length, q.shape[1] / view.attrs<CrossAttentionAttrs>().head_dim, length}}};
}

double product_flops(const NodeView& view, const Value& q) {
  return 2.0 * static_cast<double>(q.shape.elements()) *
         static_cast<double>(view.attrs<CrossAttentionAttrs>().encoder_length);
}

Cost cost(const NodeView& view) {
  return {2 * product_flops(view, view.in(CrossAttention::kQ)), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0, kS0}, {kS0, kS0}}, {{kS1, kS1, kR, kR}, {kS1, kS1}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dout = builder.gradient_of(node.outputs[CrossAttention::kOut]);
  const auto gradients =
      builder.graph().add_node(kCrossAttentionGrad,
                               {dout, node.outputs[CrossAttention::kOut], node.outputs[CrossAttention::kLse],
                                node.inputs[CrossAttention::kQ], node.inputs[CrossAttention::kKv],
                                node.inputs[CrossAttention::kKvBegin], node.inputs[CrossAttention::kKvEnd]},
                               node.attrs);
  builder.add_gradient(node.inputs[CrossAttention::kQ], gradients[0]);
  builder.add_gradient(node.inputs[CrossAttention::kKv], gradients[1]);
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  require_cross(view, CrossAttentionGrad::kQ);
  const Value& q = view.in(CrossAttentionGrad::kQ);
  const Value& kv = view.in(CrossAttentionGrad::kKv);
  return {{"dq", q.dtype, q.shape, q.segments}, {"dkv", kv.dtype, kv.shape, kv.segments}};
}

Cost cost_grad(const NodeView& view) {
  return {5 * product_flops(view, view.in(CrossAttentionGrad::kQ)), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_grad(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0, kS0, kS0, kS0, kS0}, {kS0, kS0}}, {{kS1, kS1, kS1, kS1, kS1, kR, kR}, {kS1, kS1}}};
}

// --- against a cache: (q, key cache, value cache, slot, encoder_end) → out

void require_cache(const NodeView& view, const Value& cache, const Value& rows) {
  require(view, cache.shape.rank() == 3 && cache.dtype == rows.dtype,
          "the cache must be [slots, room, kv heads · head size] in the activations' dtype");
}

std::vector<ValueSpec> infer_cached(const NodeView& view) {
  const Value& q = view.in(CachedCrossAttention::kQ);
  const Value& cache = view.in(CachedCrossAttention::kKeys);
  require_cache(view, cache, q);
  const auto& attrs = view.attrs<CrossAttentionAttrs>();
  const int64_t head_dim = attrs.head_dim, length = attrs.sequence_length;
  require(view,
          q.shape.rank() == 2 && q.shape[1] % head_dim == 0 && cache.shape[2] % head_dim == 0 &&
              q.shape[1] % cache.shape[2] == 0,
          "queries and cache must be whole heads, those of the cache a divisor of the query heads");
  require(view, q.shape[0] % length == 0, "the queries must be whole sequences");
  const Shape sequences{q.shape[0] / length};
  require(view, sequences[0] <= cache.shape[0], "every sequence must have a slot of the cache");
  require(view,
          view.in(CachedCrossAttention::kSlot).shape == sequences &&
              view.in(CachedCrossAttention::kEncoderEnd).shape == sequences,
          "there must be one slot and one end a sequence");
  return {{"out", q.dtype, q.shape}};
}

Cost cost_cached(const NodeView& view) {
  const Value& cache = view.in(CachedCrossAttention::kKeys);
  const double pairs =
      static_cast<double>(view.in(CachedCrossAttention::kQ).shape.elements() * cache.shape[1]);
  const int64_t slot = cache.bytes() / cache.shape[0];
  return {4 * pairs, static_cast<double>(2 * slot * view.in(CachedCrossAttention::kSlot).shape[0] +
                                         view.in(CachedCrossAttention::kQ).bytes() +
                                         view.out(CachedCrossAttention::kOut).bytes())};
}

std::vector<PlacementOption> placements_cached(const NodeView&, Axis) {
  const Placement by_head = Placement::sharded(2);
  return {{{kS1, by_head, by_head, kR, kR}, {kS1}}};
}

// (kv, key cache, value cache, slot) → key cache, value cache
std::vector<ValueSpec> infer_store(const NodeView& view) {
  const Value& kv = view.in(StoreCross::kKv);
  const Value& cache = view.in(StoreCross::kKeys);
  require_cache(view, cache, kv);
  require(view,
          kv.segments.size() == 2 && kv.segments[0] == cache.shape[2] && kv.segments[1] == cache.shape[2],
          "keys and values must be [M, k | v], each as wide as the cache");
  const int64_t sequences = view.in(StoreCross::kSlot).shape[0];
  require(view, sequences > 0 && kv.shape[0] % sequences == 0 && kv.shape[0] / sequences <= cache.shape[1],
          "the rows must be whole sequences, one a slot, that fit the cache's room");
  return {{"keys", cache.dtype, cache.shape}, {"values", cache.dtype, cache.shape}};
}

Cost cost_store(const NodeView& view) {
  return {0, 2 * static_cast<double>(view.in(StoreCross::kKv).bytes())};
}

std::vector<PlacementOption> placements_store(const NodeView&, Axis) {
  const Placement by_head = Placement::sharded(2);
  return {{{kS1, by_head, by_head, kR}, {by_head, by_head}}};
}

// --- (q_begin, k_begin) → ends

std::vector<ValueSpec> infer_ends(const NodeView& view) {
  const Value& q = view.in(DocumentEnds::kQBegin);
  const Value& k = view.in(DocumentEnds::kKBegin);
  const int64_t length = view.attrs<DocumentEndsAttrs>().sequence_length;
  require(view,
          q.dtype == DType::kI32 && k.dtype == DType::kI32 && q.shape.rank() == 1 && k.shape.rank() == 1,
          "begins must be i32[N] and i32[M]");
  require(view,
          q.shape[0] % length == 0 &&
              q.shape[0] / length * view.attrs<DocumentEndsAttrs>().encoder_length == k.shape[0],
          "both must be whole sequences, as many of each");
  return {{"ends", DType::kI32, q.shape}};
}

Cost cost_ends(const NodeView& view) {
  return streamed(view, 1);
}

std::vector<PlacementOption> placements_ends(const NodeView& view, Axis axis) {
  if (axis == view.attrs<DocumentEndsAttrs>().shared_on) return {{{kS0, kR}, {kS0}}};
  return {{{kS0, kS0}, {kS0}}};
}

graph::Attributes localize_ends(const NodeView& global) {
  auto attrs = global.attrs<DocumentEndsAttrs>();
  if (attrs.shared_on) attrs.sequence_length /= global.graph.mesh().size(*attrs.shared_on);
  return attrs;
}

CrossAttentionAttrs attrs_of(const AttentionOptions& options) {
  STRATA_CHECK(options.attrs.window == 0 && options.bias == kNone,
               "attention to another sequence takes neither a window nor a bias");
  return {.head_dim = options.attrs.head_dim,
          .sequence_length = options.attrs.sequence_length,
          .scale = options.attrs.scale,
          .softcap = options.attrs.softcap};
}

}  // namespace

const OpDef kCrossAttention{"cross_attention", "attention", infer, cost, placements, gradient};
const OpDef kCrossAttentionGrad{"cross_attention_grad", "attention_grad", infer_grad, cost_grad,
                                placements_grad};
const OpDef kCachedCrossAttention{"cached_cross_attention", "attention", infer_cached, cost_cached,
                                  placements_cached};
const OpDef kStoreCross{"store_cross", "elementwise", infer_store, cost_store, placements_store};
const OpDef kDocumentEnds{.name = "document_ends",
                          .family = "elementwise",
                          .infer = infer_ends,
                          .cost = cost_ends,
                          .placements = placements_ends,
                          .localize = localize_ends};

ValueId cross_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin,
                        const AttentionOptions& options) {
  CrossAttentionAttrs attrs = attrs_of(options);
  const int64_t sequences = graph.value(q).shape[0] / options.attrs.sequence_length;
  attrs.encoder_length = sequences > 0 ? graph.value(kv).shape[0] / sequences : 0;
  return graph.add_node(kCrossAttention, {q, kv, kv_begin, options.kv_end}, attrs)[0];
}

ValueId cached_cross_attention(Graph& graph, ValueId q, const CrossCache& cache, ValueId encoder_end,
                               const AttentionOptions& options) {
  STRATA_CHECK(options.kv_end == kNone,
               "cached cross-attention ends where encoder_end says: it takes no kv_end");
  return graph.add_node(kCachedCrossAttention, {q, cache.keys, cache.values, cache.slot, encoder_end},
                        attrs_of(options))[0];
}

void store_cross(Graph& graph, ValueId kv, const CrossCache& cache) {
  graph.add_node_into(kStoreCross, {kv, cache.keys, cache.values, cache.slot}, {cache.keys, cache.values});
}

ValueId document_ends(Graph& graph, ValueId q_begin, ValueId k_begin, int64_t sequences) {
  DocumentEndsAttrs attrs{graph.value(q_begin).shape[0] / sequences,
                          graph.value(k_begin).shape[0] / sequences};
  if (graph.placement(q_begin, Axis::kContext) != graph.placement(k_begin, Axis::kContext))
    attrs.shared_on = Axis::kContext;
  return graph.add_node(kDocumentEnds, {q_begin, k_begin}, attrs)[0];
}

}  // namespace strata::ops
