#include <algorithm>
#include <numeric>

#include "ops/attention/rules.h"
#include "ops/latent_attention/latent_attention.h"

namespace strata::ops {

const OpDef SplitLatents::def = define<SplitLatents>({
    .name = "split_latents",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<SplitLatents> {
      const Value& down = *node.in.down;
      const auto& parts = node.attrs.parts;
      require(node,
              down.shape.rank() == 2 && (parts.size() == 2 || parts.size() == 3) &&
                  std::accumulate(parts.begin(), parts.end(), int64_t{0}) == down.shape[1],
              "the parts must be [query? | key and value | rotated]");
      const auto part = [&](size_t from_the_end) -> Spec {
        if (from_the_end > parts.size()) return Spec::none();
        return {down.dtype, {down.shape[0], parts[parts.size() - from_the_end]}};
      };
      return {.query = part(3), .latent = part(2), .rotated = part(1)};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<SplitLatents> {
      return {{{.down = kS0}, {.query = kS0, .latent = kS0, .rotated = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& out = node.out;
          const ValueId down =
              add<JoinLatents>(builder.graph(), {.query = out.query ? builder.gradient_of(out.query) : kNone,
                                                 .latent = builder.gradient_of(out.latent),
                                                 .rotated = builder.gradient_of(out.rotated)})
                  .down;
          builder.add_gradient(node.in.down, down);
        },
});

const OpDef JoinLatents::def = define<JoinLatents>({
    .name = "join_latents",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<JoinLatents> {
      const Value& latent = *node.in.latent;
      std::vector<int64_t> parts;
      for (const graph::Ref* part : {&node.in.query, &node.in.latent, &node.in.rotated}) {
        if (!*part) continue;
        const Shape& shape = (*part)->shape;
        require(node, shape.rank() == 2 && shape[0] == latent.shape[0] && (*part)->dtype == latent.dtype,
                "the parts must have equal numbers of rows and one dtype");
        parts.push_back(shape[1]);
      }
      const int64_t width = std::accumulate(parts.begin(), parts.end(), int64_t{0});
      return {.down = {latent.dtype, {latent.shape[0], width}, parts}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<JoinLatents> {
      return {{{.query = kS0, .latent = kS0, .rotated = kS0}, {.down = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto parts = add<SplitLatents>(builder.graph(), {.down = builder.gradient_of(node.out.down)},
                                               {node.out.down->segments});
          if (node.in.query) builder.add_gradient(node.in.query, parts.query);
          builder.add_gradient(node.in.latent, parts.latent);
          builder.add_gradient(node.in.rotated, parts.rotated);
        },
});

namespace {

// Sums over heads of the rotated part of `rows` keys.
double shared_sums(int64_t rows, int64_t heads, const LatentAttrs& attrs) {
  return static_cast<double>(rows * heads * attrs.rotary_dim);
}

}  // namespace

const OpDef LatentHeads::def = define<LatentHeads>({
    .name = "latent_heads",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<LatentHeads> {
      const auto& attrs = node.attrs;
      const Value &q = *node.in.q, &kv = *node.in.kv, &rotated = *node.in.rotated;
      require(node, q.shape.rank() == 2 && q.shape[1] % attrs.head_dim() == 0,
              "the queries must be whole heads");
      const int64_t rows = q.shape[0], width = q.shape[1], heads = width / attrs.head_dim();
      const int64_t values = heads * attrs.value_dim;
      require(node,
              kv.shape.rank() == 2 && kv.shape[0] == rows && kv.dtype == q.dtype &&
                  kv.segments == std::vector{heads * attrs.plain_dim, values},
              "kv must be [N, plain keys | values] of as many heads as queries");
      require(node, rotated.shape == Shape{rows, attrs.rotary_dim} && rotated.dtype == q.dtype,
              "the shared part of the keys must be [N, rotary]");
      return {.qkv = {q.dtype, {rows, 2 * width + values}, {width, width, values}}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<LatentHeads> {
      return {{{.q = kS0, .kv = kS0, .rotated = kS0}, {.qkv = kS0}},
              {{.q = kS1, .kv = kS1, .rotated = kR}, {.qkv = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto given =
              add<LatentHeadsGrad>(builder.graph(), {.dqkv = builder.gradient_of(node.out.qkv)}, node.attrs);
          builder.add_gradient(node.in.q, given.dq);
          builder.add_gradient(node.in.kv, given.dkv);
          builder.add_gradient(node.in.rotated, given.drotated);
        },
});

const OpDef LatentHeadsGrad::def = define<LatentHeadsGrad>({
    .name = "latent_heads_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<LatentHeadsGrad> {
      const auto& attrs = node.attrs;
      const Value& dqkv = *node.in.dqkv;
      require(node, dqkv.segments.size() == 3 && dqkv.segments[0] % attrs.head_dim() == 0,
              "the gradient must have the parts [q | k | v]");
      const int64_t rows = dqkv.shape[0], width = dqkv.segments[0], heads = width / attrs.head_dim();
      const int64_t keys = heads * attrs.plain_dim, values = heads * attrs.value_dim;
      return {.dq = {dqkv.dtype, {rows, width}},
              .dkv = {dqkv.dtype, {rows, keys + values}, {keys, values}},
              .drotated = {dqkv.dtype, {rows, attrs.rotary_dim}}};
    },
    .cost = [](const auto& node) -> Cost {
      const Shape& dq = node.out.dq->shape;
      return {shared_sums(dq[0], dq[1] / node.attrs.head_dim(), node.attrs),
              graph::streamed_bytes(node.untyped())};
    },
    .placements = [](const auto&, Axis) -> Splits<LatentHeadsGrad> {
      return {{{.dqkv = kS0}, {.dq = kS0, .dkv = kS0, .drotated = kS0}},
              {{.dqkv = kS1}, {.dq = kS1, .dkv = kS1, .drotated = kP}}};
    },
});

const OpDef LatentKeys::def = define<LatentKeys>({
    .name = "latent_keys",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<LatentKeys> {
      const auto& attrs = node.attrs;
      const Value &kv = *node.in.kv, &rotated = *node.in.rotated;
      require(node,
              kv.shape.rank() == 2 && kv.segments.size() == 2 && kv.segments[1] % attrs.value_dim == 0 &&
                  kv.segments[0] == kv.segments[1] / attrs.value_dim * attrs.plain_dim,
              "kv must be [M, plain keys | values] of whole heads, the same number of each");
      const int64_t rows = kv.shape[0], heads = kv.segments[1] / attrs.value_dim;
      require(node, rotated.shape == Shape{rows, attrs.rotary_dim} && rotated.dtype == kv.dtype,
              "the shared part of the keys must be [M, rotary]");
      const int64_t keys = heads * attrs.head_dim(), values = kv.segments[1];
      return {.keys_values = {kv.dtype, {rows, keys + values}, {keys, values}}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<LatentKeys> {
      return {{{.kv = kS0, .rotated = kS0}, {.keys_values = kS0}},
              {{.kv = kS1, .rotated = kR}, {.keys_values = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto given = add<LatentKeysGrad>(
              builder.graph(), {.dkeys_values = builder.gradient_of(node.out.keys_values)}, node.attrs);
          builder.add_gradient(node.in.kv, given.dkv);
          builder.add_gradient(node.in.rotated, given.drotated);
        },
});

const OpDef LatentKeysGrad::def = define<LatentKeysGrad>({
    .name = "latent_keys_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<LatentKeysGrad> {
      const auto& attrs = node.attrs;
      const Value& given = *node.in.dkeys_values;
      require(node,
              given.segments.size() == 2 && given.segments[0] % attrs.head_dim() == 0 &&
                  given.segments[1] == given.segments[0] / attrs.head_dim() * attrs.value_dim,
              "the gradient must have the parts [k | v] of whole heads");
      const int64_t rows = given.shape[0], values = given.segments[1];
      const int64_t keys = given.segments[0] / attrs.head_dim() * attrs.plain_dim;
      return {.dkv = {given.dtype, {rows, keys + values}, {keys, values}},
              .drotated = {given.dtype, {rows, attrs.rotary_dim}}};
    },
    .cost = [](const auto& node) -> Cost {
      const Value& given = *node.in.dkeys_values;
      return {shared_sums(given.shape[0], given.segments[0] / node.attrs.head_dim(), node.attrs),
              graph::streamed_bytes(node.untyped())};
    },
    .placements = [](const auto&, Axis) -> Splits<LatentKeysGrad> {
      return {{{.dkeys_values = kS0}, {.dkv = kS0, .drotated = kS0}},
              {{.dkeys_values = kS1}, {.dkv = kS1, .drotated = kP}},
              {{.dkeys_values = kP}, {.dkv = kP, .drotated = kP}}};
    },
});

const OpDef CachedLatentAttention::def = define<CachedLatentAttention>({
    .name = "cached_latent_attention",
    .family = "attention",
    .infer = [](const auto& node) -> Outputs<CachedLatentAttention> {
      const auto& in = node.in;
      const auto& attrs = node.attrs;
      const Value &q = *in.q, &latent = *in.latent, &rotated = *in.rotated, &weight = *in.weight,
                  &cache = *in.cache;
      require(node, q.shape.rank() == 2 && q.shape[1] % attrs.head_dim() == 0,
              "the queries must be whole heads");
      const int64_t rows = q.shape[0], heads = q.shape[1] / attrs.head_dim();
      const int64_t keys = heads * attrs.plain_dim, values = heads * attrs.value_dim;
      require(node,
              latent.shape.rank() == 2 && latent.shape[0] == rows && latent.dtype == q.dtype &&
                  rotated.shape == Shape{rows, attrs.rotary_dim} && rotated.dtype == q.dtype,
              "latents and the shared part of the keys must have a row a query, in the queries' dtype");
      const int64_t rank = latent.shape[1];
      require(node,
              weight.shape == Shape{keys + values, rank} && weight.segments == std::vector{keys, values},
              "the weight must be f32[plain keys | values, rank]");
      require(node,
              cache.shape.rank() == 3 && cache.shape[2] == rank + attrs.rotary_dim && cache.dtype == q.dtype,
              "the cache must be [entries, capacity, rank + rotary] in the queries' dtype");
      const Shape sequences = require_slots(node, rows, cache, "the tokens must be whole sequences");
      require(node, in.position->shape == sequences && in.slot->shape == sequences,
              "there must be one position and one cache entry per sequence");
      require(node, !in.chosen || (in.chosen->shape.rank() == 2 && in.chosen->shape[0] == rows),
              "chosen rows of the cache must be i32[N, count]");
      return {.out = {q.dtype, {rows, values}}, .cache = {cache.dtype, cache.shape}};
    },
    .cost = [](const auto& node) -> Cost {
      const Value &q = *node.in.q, &cache = *node.in.cache, &weight = *node.in.weight;
      const auto rows = static_cast<double>(q.shape[0]);
      const int64_t whole_heads = q.shape[1] / node.attrs.head_dim();
      const auto heads = static_cast<double>(whole_heads);
      const auto width = static_cast<double>(2 * cache.shape[2] - node.attrs.rotary_dim);
      const int64_t positions = cache.shape[1];
      const int64_t seen = node.in.chosen ? std::min(positions, node.in.chosen->shape[1]) : positions;
      const double pairs = rows * heads * static_cast<double>(seen);
      const int64_t entries = std::max<int64_t>(1, cache.shape[0] * positions);
      const int64_t rows_read = std::min(positions * node.in.position->shape[0],
                                         node.in.chosen ? q.shape[0] * seen : positions * cache.shape[0]);
      const int64_t read = cache.bytes() / entries * rows_read;
      return {2 * pairs * width + 2 * rows * static_cast<double>(weight.shape.elements()),
              static_cast<double>(read + q.bytes() + weight.bytes() + node.out.out->bytes())};
    },
    .placements = [](const auto&, Axis) -> Splits<CachedLatentAttention> {
      return {{{.q = kS1,
                .latent = kR,
                .rotated = kR,
                .weight = kS0,
                .cache = kR,
                .position = kR,
                .slot = kR,
                .chosen = kR},
               {.out = kS1, .cache = kR}}};
    },
});

Latents split_latents(Graph& graph, ValueId down) {
  const auto parts = add<SplitLatents>(graph, {.down = down}, {graph.value(down).segments});
  return {parts.query, parts.latent, parts.rotated};
}

ValueId cached_latent_attention(Graph& graph, ValueId q, const Latents& latents, ValueId weight,
                                const LatentCache& cache, const LatentAttrs& attrs, ValueId chosen) {
  const Value& rows = graph.value(q);
  graph::Value attended;
  attended.name = rows.name + ".attended";
  attended.dtype = rows.dtype;
  attended.shape = {rows.shape[0], rows.shape[1] / attrs.head_dim() * attrs.value_dim};
  const ValueId out = graph.add_value(std::move(attended));
  add_into<CachedLatentAttention>(graph,
                                  {.q = q,
                                   .latent = latents.key_value,
                                   .rotated = latents.rotated,
                                   .weight = weight,
                                   .cache = cache.latents,
                                   .position = cache.position,
                                   .slot = cache.slot,
                                   .chosen = chosen},
                                  {.out = out, .cache = cache.latents}, attrs);
  return out;
}

}  // namespace strata::ops
