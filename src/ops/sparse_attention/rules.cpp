#include <algorithm>

#include "ops/attention/rules.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace strata::ops {

void IndexerAttrs::describe(graph::AttributeText& to) const {
  to("sequence_length", sequence_length);
  to("kv_length", kv_length);
  to("count", count);
  to("scale", scale);
  to("axis", name_of(axis));
  if (ranks != 1) to("ranks", ranks);
}

void SparseAttentionAttrs::describe(graph::AttributeText& to) const {
  to("head_dim", head_dim);
  if (value_dim != 0) to("value_dim", value_dim);
  to("sequence_length", sequence_length);
  to("kv_length", kv_length);
  to("scale", scale);
  if (mass) to("mass", mass);
}

void IndexerLossAttrs::describe(graph::AttributeText& to) const {
  indexer.describe(to);
  to("coefficient", coefficient);
  if (head_dim != 0) {
    to("head_dim", head_dim);
    to("main_scale", main_scale);
  }
}

namespace {

const IndexerAttrs& indexer_of(const IndexerAttrs& attrs) {
  return attrs;
}
const IndexerAttrs& indexer_of(const IndexerLossAttrs& attrs) {
  return attrs.indexer;
}

// q, k and weights of the indexer.
template <typename Op>
void require_indexer(const View<Op>& node) {
  const Value &q = *node.in.q, &k = *node.in.k;
  require(node, q.shape.rank() == 2 && k.shape.rank() == 2 && k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0,
          "the indexer's queries must be whole heads [N, H · D], its keys [M, D]");
  require(node, q.dtype == k.dtype, "the indexer's queries and keys must have one dtype");
  require(node, node.in.weights->shape == Shape{q.shape[0], q.shape[1] / k.shape[1]},
          "the heads' weights must be f32[N, H]");
  const IndexerAttrs& attrs = indexer_of(node.attrs);
  require(node, attrs.count > 0 && attrs.sequence_length > 0 && q.shape[0] % attrs.sequence_length == 0,
          "the rows must be whole sequences, and at least one key be chosen");
}

// Rows that have places among keys of whole sequences.
template <typename Op>
void require_places(const View<Op>& node) {
  require_indexer(node);
  const IndexerAttrs& attrs = indexer_of(node.attrs);
  const int64_t rows = node.in.q->shape[0];
  require(node, rows / attrs.sequence_length * attrs.kv_length == node.in.k->shape[0],
          "queries and keys must be equal numbers of sequences");
  require(node, attrs.sequence_length * attrs.ranks == attrs.kv_length,
          "the rows must be the rank's share of the keys' places");
  if (node.in.rank) {
    require(node, attrs.sequence_length % 2 == 0, "the rows of a sequence must be two equal chunks");
    require_rank_block(node);
  } else {
    require(node, attrs.ranks == 1, "ranks that share rows need their constants");
  }
  require(node, !node.in.kv_begin || node.in.kv_begin->shape == Shape{rows},
          "kv_begin must have one entry a row");
}

// Σ over rows of the keys that they see, if documents are whole sequences.
double visible_pairs(const IndexerAttrs& attrs, int64_t rows) {
  return static_cast<double>(rows) * static_cast<double>(attrs.kv_length + 1) / 2;
}
double chosen_pairs(int64_t rows, int64_t count, int64_t kv_length) {
  return static_cast<double>(rows) * static_cast<double>(std::min(count, kv_length));
}

// The batch; or, on the axis that shares them, rows of sequences against whole keys. Members that are keys,
// lse or sums differ.
template <typename Op>
Splits<Op> indexer_splits(const View<Op>& node, Axis axis) {
  const IndexerAttrs& attrs = indexer_of(node.attrs);
  graph::Split<Op> rows = split_alike<Op>(kS0);
  rows.in.rank = kR;
  if constexpr (requires { rows.out.sum; }) rows.out.sum = kP;
  if constexpr (requires { rows.in.seed; }) rows.in.seed = kR;
  if (axis != attrs.axis || attrs.ranks != 1) return {rows};
  if (!node.in.rank) return {};
  rows.in.k = kR;
  if constexpr (requires { rows.in.main_kv; }) {
    rows.in.main_kv = kR;
    rows.in.main_lse = kS2;
  }
  if constexpr (requires { rows.out.dk; }) rows.out.dk = kP;
  return {rows};
}

template <typename Op>
IndexerAttrs localize_indexer(const View<Op>& node) {
  IndexerAttrs attrs = indexer_of(node.attrs);
  if (!node.in.rank || node.graph.placement(node.in.q, attrs.axis) != kS0) return attrs;
  attrs.ranks = node.graph.mesh().size(attrs.axis);
  attrs.sequence_length /= attrs.ranks;
  return attrs;
}

}  // namespace

const OpDef SelectKeys::def = define<SelectKeys>({
    .name = "select_keys",
    .family = "indexer",
    .infer = [](const auto& node) -> Outputs<SelectKeys> {
      require_places(node);
      return {.chosen = {DType::kI32, {node.in.q->shape[0], node.attrs.count}}};
    },
    .cost = [](const auto& node) -> Cost {
      const Shape& q = node.in.q->shape;
      return {2 * visible_pairs(node.attrs, q[0]) * static_cast<double>(q[1]),
              graph::streamed_bytes(node.untyped())};
    },
    .placements = indexer_splits<SelectKeys>,
    .localize = localize_indexer<SelectKeys>,
});

namespace {

template <typename Op>
int64_t require_sparse(const View<Op>& node) {
  const auto& attrs = node.attrs;
  const Value &q = *node.in.q, &kv = *node.in.kv, &chosen = *node.in.chosen;
  require_queries_keys(node);
  require(node, chosen.shape.rank() == 2 && chosen.shape[0] == q.shape[0] && chosen.shape[1] > 0,
          "the chosen keys must be i32[N, count]");
  require(node,
          attrs.sequence_length > 0 && q.shape[0] % attrs.sequence_length == 0 &&
              q.shape[0] / attrs.sequence_length * attrs.kv_length == kv.shape[0],
          "queries and keys must be equal numbers of sequences");
  return chosen.shape[1];
}

// The batch; heads, whose masses add up; on the context axis rows of sequences against whole keys.
template <typename Op>
Splits<Op> sparse_splits(const View<Op>&, Axis axis) {
  graph::Split<Op> rows = split_alike<Op>(kS0), heads = split_alike<Op>(kS1);
  heads.in.chosen = kR;
  if constexpr (requires { heads.out.mass; }) heads.out.mass = kP;
  if (axis != Axis::kContext) return {rows, heads};
  rows.in.kv = kR;
  if constexpr (requires { rows.in.lse; }) rows.in.lse = kS2;
  if constexpr (requires { rows.out.lse; }) rows.out.lse = kS2;
  if constexpr (requires { rows.out.dkv; }) rows.out.dkv = kP;
  return {rows};
}

template <typename Op>
SparseAttentionAttrs localize_sparse(const View<Op>& node) {
  SparseAttentionAttrs attrs = node.attrs;
  if (node.graph.placement(node.in.q, Axis::kContext) == kS0)
    attrs.sequence_length /= node.graph.mesh().size(Axis::kContext);
  return attrs;
}

template <typename Op>
Cost sparse_cost(const View<Op>& node, double of_keys, double of_values) {
  const auto& attrs = node.attrs;
  const Shape& q = node.in.q->shape;
  const double width =
      of_keys * static_cast<double>(attrs.head_dim) + of_values * static_cast<double>(attrs.size_of_value());
  return {2 * chosen_pairs(q[0], node.in.chosen->shape[1], attrs.kv_length) *
              static_cast<double>(q[1] / attrs.head_dim) * width,
          graph::streamed_bytes(node.untyped())};
}

}  // namespace

const OpDef SparseAttention::def = define<SparseAttention>({
    .name = "sparse_attention",
    .family = "sparse_attention",
    .infer = [](const auto& node) -> Outputs<SparseAttention> {
      const int64_t count = require_sparse(node);
      Outputs<SparseAttention> out = attended_rows<SparseAttention>(*node.in.q, node.attrs);
      out.mass = node.attrs.mass ? Spec{DType::kF32, {node.in.q->shape[0], count}} : Spec::none();
      return out;
    },
    .cost = [](const auto& node) { return sparse_cost(node, 1, 1); },
    .placements = sparse_splits<SparseAttention>,
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& in = node.in;
          const ValueId dout = builder.gradient_of(node.out.out);
          if (dout == kNone) return;
          const auto made = add<SparseAttentionGrad>(builder.graph(),
                                                     {.dout = dout,
                                                      .out = node.out.out,
                                                      .lse = node.out.lse,
                                                      .q = in.q,
                                                      .kv = in.kv,
                                                      .chosen = in.chosen},
                                                     node.attrs);
          builder.add_gradient(in.q, made.dq);
          builder.add_gradient(in.kv, made.dkv);
        },
    .localize = localize_sparse<SparseAttention>,
});

const OpDef SparseAttentionGrad::def = define<SparseAttentionGrad>({
    .name = "sparse_attention_grad",
    .family = "sparse_attention_grad",
    .infer = [](const auto& node) -> Outputs<SparseAttentionGrad> {
      require_sparse(node);
      return {.dq = Spec::like(*node.in.q), .dkv = Spec::like(*node.in.kv)};
    },
    // Scores again, dQ and dK; dP and dV.
    .cost = [](const auto& node) { return sparse_cost(node, 3, 2); },
    .placements = sparse_splits<SparseAttentionGrad>,
    .localize = localize_sparse<SparseAttentionGrad>,
});

namespace {

template <typename Op>
void require_loss(const View<Op>& node) {
  require_places(node);
  const auto& in = node.in;
  const IndexerAttrs& indexer = node.attrs.indexer;
  const int64_t rows = in.q->shape[0];
  require(node, in.targets->shape == Shape{rows}, "targets must be i32[N]");
  require(
      node,
      in.chosen.present() == in.mass.present() && in.main_q.present() == in.main_kv.present() &&
          in.main_q.present() == in.main_lse.present() && in.chosen.present() != in.main_q.present(),
      "the loss takes either chosen keys and their masses, or queries, keys and lse of the main attention");
  if (in.chosen) {
    require(node, in.chosen->shape == Shape{rows, indexer.count} && in.mass->shape == in.chosen->shape,
            "chosen keys must be i32[N, count], and their masses f32[N, count]");
    return;
  }
  const Value &q = *in.main_q, &kv = *in.main_kv;
  const int64_t head_dim = node.attrs.head_dim;
  require(node,
          head_dim > 0 && q.shape.rank() == 2 && q.shape[0] == rows && q.shape[1] % head_dim == 0 &&
              q.dtype == in.q->dtype,
          "the main queries must be whole heads [N, h · hd] in the indexer's dtype");
  require(node,
          kv.shape.rank() == 2 && kv.segments.size() == 2 && kv.shape[0] == in.k->shape[0] &&
              kv.segments[0] % head_dim == 0 && kv.segments[0] > 0 && q.shape[1] % kv.segments[0] == 0 &&
              kv.dtype == q.dtype,
          "the main keys and values must be [M, k | v], keys of whole heads, a divisor of the query heads");
  require(node,
          in.main_lse->shape ==
              Shape{rows / indexer.sequence_length, q.shape[1] / head_dim, indexer.sequence_length},
          "the main lse must be f32[sequences, heads, sequence_length]");
}

template <typename Op>
Cost loss_cost(const View<Op>& node, double of_indexer) {
  const auto& in = node.in;
  const IndexerAttrs& indexer = node.attrs.indexer;
  const int64_t rows = in.q->shape[0];
  const double pairs =
      in.chosen ? chosen_pairs(rows, indexer.count, indexer.kv_length) : visible_pairs(indexer, rows);
  const double main = in.main_q ? static_cast<double>(in.main_q->shape[1]) : 0;
  return {2 * pairs * (of_indexer * static_cast<double>(in.q->shape[1]) + main),
          graph::streamed_bytes(node.untyped())};
}

template <typename Op>
IndexerLossAttrs localize_loss(const View<Op>& node) {
  IndexerLossAttrs attrs = node.attrs;
  attrs.indexer = localize_indexer(node);
  return attrs;
}

}  // namespace

const OpDef IndexerLoss::def = define<IndexerLoss>({
    .name = "indexer_loss",
    .family = "indexer",
    .infer = [](const auto& node) -> Outputs<IndexerLoss> {
      require_loss(node);
      return {.sum = {DType::kF64, {1}}};
    },
    .cost = [](const auto& node) { return loss_cost(node, 1); },
    .placements = indexer_splits<IndexerLoss>,
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& in = node.in;
          const auto made = add<IndexerLossGrad>(builder.graph(),
                                                 {.q = in.q,
                                                  .k = in.k,
                                                  .weights = in.weights,
                                                  .targets = in.targets,
                                                  .chosen = in.chosen,
                                                  .mass = in.mass,
                                                  .main_q = in.main_q,
                                                  .main_kv = in.main_kv,
                                                  .main_lse = in.main_lse,
                                                  .kv_begin = in.kv_begin,
                                                  .rank = in.rank,
                                                  .seed = builder.gradient_of(node.out.sum)},
                                                 node.attrs);
          builder.add_gradient(in.q, made.dq);
          builder.add_gradient(in.k, made.dk);
          builder.add_gradient(in.weights, made.dweights);
        },
    .localize = localize_loss<IndexerLoss>,
});

const OpDef IndexerLossGrad::def = define<IndexerLossGrad>({
    .name = "indexer_loss_grad",
    .family = "indexer",
    .infer = [](const auto& node) -> Outputs<IndexerLossGrad> {
      require_loss(node);
      require(node, !node.in.seed || node.in.seed->shape == Shape{1}, "the seed must be f32[1]");
      return {.dq = Spec::like(*node.in.q),
              .dk = Spec::like(*node.in.k),
              .dweights = {DType::kF32, node.in.weights->shape}};
    },
    // Scores again, and the gradients of queries and keys.
    .cost = [](const auto& node) { return loss_cost(node, 3); },
    .placements = indexer_splits<IndexerLossGrad>,
    .localize = localize_loss<IndexerLossGrad>,
});

const OpDef CachedSelectKeys::def = define<CachedSelectKeys>({
    .name = "cached_select_keys",
    .family = "indexer",
    .infer = [](const auto& node) -> Outputs<CachedSelectKeys> {
      require_indexer(node);
      const Value &q = *node.in.q, &k = *node.in.k, &cache = *node.in.cache;
      require(node, k.shape[0] == q.shape[0], "there must be one new key a row");
      require(node, cache.shape.rank() == 3 && cache.shape[2] == k.shape[1] && cache.dtype == k.dtype,
              "the cache must be [entries, capacity, D] in the keys' dtype");
      const Shape sequences = require_slots(node, q.shape[0], cache, "the tokens must be whole sequences");
      require(node, node.in.position->shape == sequences && node.in.slot->shape == sequences,
              "there must be one position and one cache entry per sequence");
      return {.chosen = {DType::kI32, {q.shape[0], node.attrs.count}}, .cache = {cache.dtype, cache.shape}};
    },
    .cost = [](const auto& node) -> Cost {
      const Value &q = *node.in.q, &cache = *node.in.cache;
      const int64_t read = cache.bytes() / cache.shape[0] * node.in.position->shape[0];
      return {2 * static_cast<double>(q.shape.elements()) * static_cast<double>(cache.shape[1]),
              static_cast<double>(read + q.bytes() + node.out.chosen->bytes())};
    },
    .placements = [](const auto&, Axis) -> Splits<CachedSelectKeys> { return {}; },
});

ValueId cached_select_keys(Graph& graph, const IndexerOperands& operands, const IndexerCache& cache,
                           const IndexerAttrs& attrs) {
  const Value& rows = graph.value(operands.q);
  graph::Value chosen;
  chosen.name = rows.name + ".chosen";
  chosen.dtype = DType::kI32;
  chosen.shape = {rows.shape[0], attrs.count};
  const ValueId out = graph.add_value(std::move(chosen));
  add_into<CachedSelectKeys>(graph,
                             {.q = operands.q,
                              .k = operands.k,
                              .weights = operands.weights,
                              .cache = cache.keys,
                              .position = cache.position,
                              .slot = cache.slot},
                             {.chosen = out, .cache = cache.keys}, attrs);
  return out;
}

}  // namespace strata::ops
