#include "ops/latent_attention.h"

#include <numeric>

#include "ops/rules.h"

namespace strata::ops {
namespace {

Cost cost_copy(const NodeView& view) {
  return {0, graph::streamed_bytes(view)};
}

// --- split_latents, join_latents

std::vector<ValueSpec> infer_split(const NodeView& view) {
  const Value& down = view.in(SplitLatents::kDown);
  const auto& parts = view.attrs<SplitLatentsAttrs>().parts;
  require(view,
          down.shape.rank() == 2 && (parts.size() == 2 || parts.size() == 3) &&
              std::accumulate(parts.begin(), parts.end(), int64_t{0}) == down.shape[1],
          "the parts must be [query? | key and value | rotated]");
  const auto part = [&](const char* name, size_t from_the_end) -> ValueSpec {
    return {name, down.dtype, {down.shape[0], parts[parts.size() - from_the_end]}};
  };
  ValueSpec query{"query", down.dtype, {}, {}, true};
  if (parts.size() == 3) query = part("query", 3);
  return {query, part("latent", 2), part("rotated", 1)};
}

std::vector<PlacementOption> placements_split(const NodeView&, Axis) {
  return {{{kS0}, {kS0, kS0, kS0}}};
}

void gradient_split(GradientBuilder& builder, const Node& node) {
  const auto part = [&](size_t out) {
    return node.outputs[out] == kNone ? kNone : builder.gradient_of(node.outputs[out]);
  };
  const auto parts = {part(SplitLatents::kQuery), part(SplitLatents::kKeyValue),
                      part(SplitLatents::kRotated)};
  builder.add_gradient(node.inputs[SplitLatents::kDown], builder.graph().add_node(kJoinLatents, parts)[0]);
}

std::vector<ValueSpec> infer_join(const NodeView& view) {
  const Value& latent = view.in(JoinLatents::kKeyValue);
  std::vector<int64_t> parts;
  int64_t width = 0;
  for (const int i : {JoinLatents::kQuery, JoinLatents::kKeyValue, JoinLatents::kRotated}) {
    if (!view.has(i)) continue;
    const Value& part = view.in(i);
    require(view, part.shape.rank() == 2 && part.shape[0] == latent.shape[0] && part.dtype == latent.dtype,
            "the parts must have as many rows and one dtype");
    parts.push_back(part.shape[1]);
    width += part.shape[1];
  }
  return {{"down", latent.dtype, {latent.shape[0], width}, parts}};
}

std::vector<PlacementOption> placements_join(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0}}};
}

void gradient_join(GradientBuilder& builder, const Node& node) {
  Graph& graph = builder.graph();
  const ValueId down = node.outputs[JoinLatents::kDown];
  const auto parts = graph.add_node(kSplitLatents, {builder.gradient_of(down)},
                                    SplitLatentsAttrs{graph.value(down).segments});
  for (size_t i = 0; i < parts.size(); ++i) {
    if (node.inputs[i] != kNone) builder.add_gradient(node.inputs[i], parts[i]);
  }
}

// --- latent_heads

std::vector<ValueSpec> infer_heads(const NodeView& view) {
  const auto& [plain, rotary, value, length, scale] = view.attrs<LatentAttrs>();
  const Value &q = view.in(LatentHeads::kQ), &kv = view.in(LatentHeads::kKv),
              &rotated = view.in(LatentHeads::kRotated);
  require(view, q.shape.rank() == 2 && q.shape[1] % (plain + rotary) == 0, "the queries must be whole heads");
  const int64_t rows = q.shape[0], heads = q.shape[1] / (plain + rotary);
  require(view,
          kv.shape.rank() == 2 && kv.shape[0] == rows && kv.dtype == q.dtype &&
              kv.segments == std::vector{heads * plain, heads * value},
          "kv must be [N, plain keys | values] of as many heads as queries");
  require(view, rotated.shape == Shape{rows, rotary} && rotated.dtype == q.dtype,
          "the shared part of the keys must be [N, rotary]");
  const std::vector<int64_t> parts{q.shape[1], q.shape[1], heads * value};
  return {{"qkv", q.dtype, {rows, 2 * q.shape[1] + heads * value}, parts}};
}

std::vector<PlacementOption> placements_heads(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0}}, {{kS1, kS1, kR}, {kS1}}};
}

void gradient_heads(GradientBuilder& builder, const Node& node) {
  const auto given = builder.graph().add_node(
      kLatentHeadsGrad, {builder.gradient_of(node.outputs[LatentHeads::kQkv])}, node.attrs);
  for (size_t i = 0; i < given.size(); ++i) builder.add_gradient(node.inputs[i], given[i]);
}

std::vector<ValueSpec> infer_heads_grad(const NodeView& view) {
  const auto& [plain, rotary, value, length, scale] = view.attrs<LatentAttrs>();
  const Value& dqkv = view.in(LatentHeadsGrad::kDqkv);
  require(view, dqkv.segments.size() == 3 && dqkv.segments[0] % (plain + rotary) == 0,
          "the gradient must have the parts [q | k | v]");
  const int64_t rows = dqkv.shape[0], heads = dqkv.segments[0] / (plain + rotary);
  const std::vector<int64_t> parts{heads * plain, heads * value};
  return {{"dq", dqkv.dtype, {rows, dqkv.segments[0]}},
          {"dkv", dqkv.dtype, {rows, heads * (plain + value)}, parts},
          {"drotated", dqkv.dtype, {rows, rotary}}};
}

Cost cost_heads_grad(const NodeView& view) {
  const Value& q = view.out(LatentHeadsGrad::kDq);
  const auto& attrs = view.attrs<LatentAttrs>();
  const double shared = static_cast<double>(q.shape.elements()) * static_cast<double>(attrs.rotary_dim) /
                        static_cast<double>(attrs.plain_dim + attrs.rotary_dim);
  return {shared, graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_heads_grad(const NodeView&, Axis) {
  return {{{kS0}, {kS0, kS0, kS0}}, {{kS1}, {kS1, kS1, kP}}};
}

// --- cached_latent_attention

std::vector<ValueSpec> infer_cached(const NodeView& view) {
  using In = CachedLatentAttention;
  const auto& [plain, rotary, value, length, scale] = view.attrs<LatentAttrs>();
  const Value &q = view.in(In::kQ), &latent = view.in(In::kLatent), &rotated = view.in(In::kRotated),
              &weight = view.in(In::kWeight), &cache = view.in(In::kCache);
  require(view, q.shape.rank() == 2 && q.shape[1] % (plain + rotary) == 0, "the queries must be whole heads");
  const int64_t rows = q.shape[0], heads = q.shape[1] / (plain + rotary);
  require(view,
          latent.shape.rank() == 2 && latent.shape[0] == rows && latent.dtype == q.dtype &&
              rotated.shape == Shape{rows, rotary} && rotated.dtype == q.dtype,
          "latents and the shared part of the keys must have a row a query, in the queries' dtype");
  const int64_t rank = latent.shape[1];
  require(view,
          weight.dtype == DType::kF32 && weight.shape == Shape{heads * (plain + value), rank} &&
              weight.segments == std::vector{heads * plain, heads * value},
          "the weight must be f32[plain keys | values, rank]");
  require(view, cache.shape.rank() == 3 && cache.shape[2] == rank + rotary && cache.dtype == q.dtype,
          "the cache must be [slots, room, rank + rotary] in the queries' dtype");
  require(view, rows % length == 0, "the tokens must be whole sequences");
  const Shape sequences{rows / length};
  require(view, sequences[0] <= cache.shape[0], "every sequence must have a slot of the cache");
  require(view, view.in(In::kPosition).shape == sequences && view.in(In::kSlot).shape == sequences,
          "there must be one position and one slot a sequence");
  return {{"out", q.dtype, {rows, heads * value}}, {"cache", cache.dtype, cache.shape}};
}

Cost cost_cached(const NodeView& view) {
  using In = CachedLatentAttention;
  const Value &q = view.in(In::kQ), &cache = view.in(In::kCache), &weight = view.in(In::kWeight);
  const auto& attrs = view.attrs<LatentAttrs>();
  const auto rows = static_cast<double>(q.shape[0]);
  const int64_t head_count = q.shape[1] / (attrs.plain_dim + attrs.rotary_dim);
  const auto heads = static_cast<double>(head_count);
  const auto width = static_cast<double>(2 * cache.shape[2] - attrs.rotary_dim);
  const double pairs = rows * heads * static_cast<double>(cache.shape[1]);
  const int64_t read = cache.bytes() / cache.shape[0] * view.in(In::kPosition).shape[0];
  return {2 * pairs * width + 2 * rows * static_cast<double>(weight.shape.elements()),
          static_cast<double>(read + q.bytes() + weight.bytes() + view.out(In::kOut).bytes())};
}

std::vector<PlacementOption> placements_cached(const NodeView&, Axis) {
  return {{{kS1, kR, kR, kS0, kR, kR, kR}, {kS1, kR}}};
}

}  // namespace

const OpDef kSplitLatents{"split_latents", "elementwise",    infer_split,
                          cost_copy,       placements_split, gradient_split};
const OpDef kJoinLatents{"join_latents", "elementwise",   infer_join,
                         cost_copy,      placements_join, gradient_join};
const OpDef kLatentHeads{"latent_heads", "elementwise",    infer_heads,
                         cost_copy,      placements_heads, gradient_heads};
const OpDef kLatentHeadsGrad{"latent_heads_grad", "elementwise", infer_heads_grad, cost_heads_grad,
                             placements_heads_grad};
const OpDef kCachedLatentAttention{"cached_latent_attention", "attention", infer_cached, cost_cached,
                                   placements_cached};

Latents split_latents(Graph& graph, ValueId down) {
  const auto parts = graph.add_node(kSplitLatents, {down}, SplitLatentsAttrs{graph.value(down).segments});
  return {parts[SplitLatents::kQuery], parts[SplitLatents::kKeyValue], parts[SplitLatents::kRotated]};
}

ValueId latent_heads(Graph& graph, ValueId q, ValueId kv, ValueId rotated, const LatentAttrs& attrs) {
  return graph.add_node(kLatentHeads, {q, kv, rotated}, attrs)[0];
}

ValueId cached_latent_attention(Graph& graph, ValueId q, const Latents& latents, ValueId weight,
                                const LatentCache& cache, const LatentAttrs& attrs) {
  const Value& rows = graph.value(q);
  graph::Value attended;
  attended.name = rows.name + ".attended";
  attended.dtype = rows.dtype;
  attended.shape = {rows.shape[0], rows.shape[1] / (attrs.plain_dim + attrs.rotary_dim) * attrs.value_dim};
  const ValueId out = graph.add_value(std::move(attended));
  graph.add_node_into(
      kCachedLatentAttention,
      {q, latents.key_value, latents.rotated, weight, cache.latents, cache.position, cache.slot},
      {out, cache.latents}, attrs);
  return out;
}

}  // namespace strata::ops
