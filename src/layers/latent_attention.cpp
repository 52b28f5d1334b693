#include "layers/latent_attention.h"

#include "base/error.h"
#include "layers/context_parallel.h"
#include "ops/context_attention/context_attention.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/rope/rope.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace strata::layers {
namespace {

using graph::ParameterRole;

void require_layout(const Context& context, const LatentAttentionSpec& spec) {
  const int64_t ranks = context.graph.mesh().size(Axis::kTensor);
  if (spec.heads % ranks != 0) {
    throw ConfigError("[{}] {} ranks cannot share the {} attention heads of {}; take a divisor of {}",
                      context.words.tensor, ranks, spec.heads, spec.name, spec.heads);
  }
}

// One matmul from hidden states to all latents.
ops::Latents latents_of(Context& context, const LatentAttentionSpec& spec, ValueId x) {
  const LatentDims& dims = spec.dims;
  std::vector<int64_t> parts{dims.rank, dims.rotary_dim};
  if (dims.query_rank > 0) parts.insert(parts.begin(), dims.query_rank);
  const ValueId down = linear(context,
                              {.name = spec.name + ".down",
                               .role = ParameterRole::kLatentIn,
                               .inputs = spec.hidden_size,
                               .outputs = dims.query_rank + dims.rank + dims.rotary_dim,
                               .bias = spec.bias,
                               .parallel = LinearSpec::Parallel::kReplicated,
                               .segments = parts},
                              x);
  ops::Latents latents = ops::split_latents(context.graph, down);
  const auto normed = [&](const char* name, int64_t width, ValueId latent) {
    return norm(context, {.name = spec.name + name, .hidden_size = width, .eps = spec.norm_eps}, latent).y;
  };
  if (dims.query_rank > 0) latents.query = normed(".query_norm", dims.query_rank, latents.query);
  latents.key_value = normed(".latent_norm", dims.rank, latents.key_value);
  if (spec.rope_table == kNone) return latents;
  latents.rotated =
      graph::add<ops::Rope>(context.graph,
                            {.x = latents.rotated,
                             .table = spec.rope_table,
                             .positions = rows_of_stream(context, context.inputs.batch[Column::kPositions])},
                            {.head_dim = dims.rotary_dim, .adjacent = spec.adjacent_pairs})
          .qkv;
  return latents;
}

// `from`: their latent, or hidden states, all rows.
ValueId queries_of(Context& context, const LatentAttentionSpec& spec, ValueId from) {
  const LatentDims& dims = spec.dims;
  const bool of_latent = dims.query_rank > 0;
  const ValueId q = projected(context,
                              {.name = spec.name + ".q",
                               .role = of_latent ? ParameterRole::kLatentUp : ParameterRole::kLatentIn,
                               .inputs = of_latent ? dims.query_rank : spec.hidden_size,
                               .outputs = spec.heads * dims.head_dim()},
                              from);
  if (spec.rope_table == kNone) return q;
  return graph::add<ops::Rope>(
             context.graph,
             {.x = q, .table = spec.rope_table, .positions = context.inputs.batch[Column::kPositions]},
             {.head_dim = dims.head_dim(), .first = dims.plain_dim, .adjacent = spec.adjacent_pairs})
      .qkv;
}

LinearSpec up_of(const LatentAttentionSpec& spec) {
  const LatentDims& dims = spec.dims;
  return {.name = spec.name + ".kv",
          .role = ParameterRole::kLatentUp,
          .inputs = dims.rank,
          .outputs = spec.heads * (dims.plain_dim + dims.value_dim),
          .segments = {spec.heads * dims.plain_dim, spec.heads * dims.value_dim}};
}

// Keys and values [M, k | v]: of whole sequences, whose latents all ranks of the context axis get, and not
// the many times wider keys and values; in a ring, of a rank's rows.
ValueId keys_values_of(Context& context, const LatentAttentionSpec& spec, ops::Latents latents,
                       const ops::LatentAttrs& attrs) {
  latents.key_value = gathered(context, latents.key_value);
  if (context.settings.context_kind == ContextKind::kAllGather) {
    latents.key_value = whole_sequences(context, latents.key_value, context.rows.length);
    latents.rotated = whole_sequences(context, latents.rotated, context.rows.length);
  }
  const ValueId kv = projected(context, up_of(spec), latents.key_value);
  return graph::add<ops::LatentKeys>(context.graph, {.kv = kv, .rotated = latents.rotated}, attrs)
      .keys_values;
}

ops::AttentionOptions options_of(const Context& context, const LatentAttentionSpec& spec,
                                 const ops::LatentAttrs& attrs, ops::GreatestScores* greatest) {
  return {.attrs = {.head_dim = attrs.head_dim(),
                    .sequence_length = context.rows.length,
                    .scale = spec.scale,
                    .value_dim = attrs.value_dim},
          .kv_end = context.inputs.kv_end,
          .greatest = greatest};
}

// Queries of a rank's heads, and the latents, whose rotated part is whole on the tensor axis.
struct Heads {
  ValueId q = kNone;
  ops::Latents latents;
  ops::LatentAttrs attrs;
};

// Attention over sequences, to all keys.
ValueId attend(Context& context, const LatentAttentionSpec& spec, const Heads& heads,
               ops::GreatestScores* greatest) {
  Graph& graph = context.graph;
  const ValueId kv_begin = context.inputs.batch[Column::kKvBegin];
  const ops::AttentionOptions options = options_of(context, spec, heads.attrs, greatest);
  const bool shared = shares_sequences(context);
  const ContextKind kind = context.settings.context_kind;
  if (shared && kind != ContextKind::kUlysses) {
    const ValueId kv = keys_values_of(context, spec, heads.latents, heads.attrs);
    return kind == ContextKind::kRing
               ? ops::ring_attention(graph, heads.q, kv, kv_begin, options)
               : ops::context_attention(graph, heads.q, kv, kv_begin, context.rows.length, options);
  }
  const ValueId kv = linear(context, up_of(spec), heads.latents.key_value);
  const ValueId qkv = graph::add<ops::LatentHeads>(
                          graph, {.q = heads.q, .kv = kv, .rotated = heads.latents.rotated}, heads.attrs)
                          .qkv;
  return shared ? shared_attention(context, spec.name, qkv, kv_begin, options)
                : ops::attention(graph, qkv, kv_begin, options);
}

void require_indexer_layout(const Context& context, const LatentAttentionSpec& spec) {
  if (!shares_sequences(context) || context.settings.context_kind == ContextKind::kAllGather) return;
  const bool ring = context.settings.context_kind == ContextKind::kRing;
  throw ConfigError(
      "[{0}] with {0} = \"{1}\" no rank of {2} has all keys, of which the indexer of {3} chooses; take \"all_gather\"",
      context.words.context_kind, ring ? "ring" : "ulysses", context.words.context, spec.name);
}

IndexerSpec indexer_of(const LatentAttentionSpec& spec) {
  return {.name = spec.name + ".indexer",
          .hidden_size = spec.hidden_size,
          .query_rank = spec.dims.query_rank,
          .dims = *spec.indexer,
          .rope_table = spec.rope_table};
}

ops::SparseAttentionAttrs sparse_attrs(const Context& context, const LatentAttentionSpec& spec,
                                       const Heads& heads, bool mass) {
  return {.head_dim = heads.attrs.head_dim(),
          .value_dim = heads.attrs.value_dim,
          .sequence_length = context.rows.length,
          .kv_length = context.rows.length,
          .scale = spec.scale,
          .mass = mass};
}

// Attention over sequences, to the keys that have been chosen. `scores`: of the block's own indexer, if it has one.
ValueId attend_to_chosen(Context& context, const LatentAttentionSpec& spec, const Heads& heads,
                         const Indexed* scores, ops::GreatestScores* greatest) {
  Graph& graph = context.graph;
  const bool learns = scores != nullptr && context.settings.trains_indexer;
  const ValueId chosen = context.results.chosen;
  ops::SparseAttentionAttrs attrs = sparse_attrs(context, spec, heads, learns);
  attrs.greatest_parts =
      ops::parts_of_greatest(graph, heads.q, options_of(context, spec, heads.attrs, greatest));
  const auto attended = graph::add<ops::SparseAttention>(
      graph,
      {.q = heads.q, .kv = keys_values_of(context, spec, heads.latents, heads.attrs), .chosen = chosen},
      attrs);
  ops::keep_greatest(graph, attended.greatest, greatest);
  if (learns) add_indexer_loss(context, indexer_of(spec), *scores, {.chosen = chosen, .mass = attended.mass});
  return attended.out;
}

// Attention over sequences to all keys, from which the indexer learns.
ValueId attend_and_teach(Context& context, const LatentAttentionSpec& spec, const Heads& heads,
                         const Indexed& scores, ops::GreatestScores* greatest) {
  Graph& graph = context.graph;
  const ValueId kv_begin = context.inputs.batch[Column::kKvBegin];
  const ops::AttentionOptions options = options_of(context, spec, heads.attrs, greatest);
  ValueId keys_values = kNone;
  ops::AttendedIds attended{};
  if (shares_sequences(context)) {
    keys_values = keys_values_of(context, spec, heads.latents, heads.attrs);
    attended = ops::context_attended(graph, heads.q, keys_values, kv_begin, context.rows.length, options);
  } else {
    const ValueId kv = linear(context, up_of(spec), heads.latents.key_value);
    const ValueId rotated = heads.latents.rotated;
    keys_values = graph::add<ops::LatentKeys>(graph, {.kv = kv, .rotated = rotated}, heads.attrs).keys_values;
    const auto qkv =
        graph::add<ops::LatentHeads>(graph, {.q = heads.q, .kv = kv, .rotated = rotated}, heads.attrs).qkv;
    attended = ops::attended(graph, qkv, kv_begin, options);
  }
  const MainAttention main{.q = heads.q,
                           .kv = keys_values,
                           .lse = attended.lse,
                           .head_dim = heads.attrs.head_dim(),
                           .scale = spec.scale};
  add_indexer_loss(context, indexer_of(spec), scores, main);
  const auto chosen = graph::add<ops::SparseAttention>(
      graph, {.q = heads.q, .kv = keys_values, .chosen = chosen_keys(context, indexer_of(spec), scores)},
      sparse_attrs(context, spec, heads, false));
  add_indexer_share(context, chosen.lse, main, spec.heads);
  return attended.out;
}

// Attention to the caches.
ValueId attend_to_caches(Context& context, const LatentAttentionSpec& spec, Heads heads) {
  const LatentDims& dims = spec.dims;
  heads.attrs.sequence_length = context.rows.length;
  heads.attrs.scale = spec.scale;
  heads.latents.key_value = gathered(context, heads.latents.key_value);
  const ValueId cached =
      cache(context, spec.name + ".latents", context.rows.cache_capacity, dims.rank + dims.rotary_dim, false);
  return ops::cached_latent_attention(context.graph, heads.q, heads.latents,
                                      projection_weight(context, up_of(spec)),
                                      {cached, context.inputs.cache_position, context.inputs.cache_slot},
                                      heads.attrs, context.results.chosen);
}

}  // namespace

ValueId latent_attention(Context& context, const LatentAttentionSpec& spec, ValueId x) {
  require_layout(context, spec);
  const LatentDims& dims = spec.dims;
  Heads heads{.latents = latents_of(context, spec, x),
              .attrs = {dims.plain_dim, dims.rotary_dim, dims.value_dim}};
  const ValueId of_queries = gathered(context, dims.query_rank > 0 ? heads.latents.query : x);
  const auto parameters = [&] { return context.graph.parameters().size(); };
  const size_t first_of_queries = parameters();
  heads.q = queries_of(context, spec, of_queries);
  const size_t end_of_queries = parameters();
  heads.latents.rotated = gathered(context, heads.latents.rotated);

  const bool is_sparse = spec.indexer && context.settings.indexer == Settings::Indexer::kSparse;
  std::optional<Indexed> scores;
  if (spec.indexer) require_indexer_layout(context, spec);
  if (spec.indexer && spec.has_own_indexer && (is_sparse || context.settings.trains_indexer)) {
    scores = indexed(context, indexer_of(spec), x, of_queries);
    if (is_sparse) context.results.chosen = chosen_keys(context, indexer_of(spec), *scores);
  }

  ops::GreatestScores found{spec.name + ".greatest_scores"};
  ops::GreatestScores* const greatest = context.settings.score_limit > 0 ? &found : nullptr;
  const size_t first_of_keys = parameters();
  ValueId out = kNone;
  if (context.mode != Mode::kSequences) {
    out = attend_to_caches(context, spec, heads);
  } else if (is_sparse) {
    out = attend_to_chosen(context, spec, heads, scores ? &*scores : nullptr, greatest);
  } else if (scores) {
    out = attend_and_teach(context, spec, heads, *scores, greatest);
  } else {
    out = attend(context, spec, heads, greatest);
  }
  if (greatest != nullptr) {
    using Share = graph::Parameter::ScoreClip::Share;
    clip_scores(context, first_of_queries, end_of_queries, found, spec.heads,
                {{spec.heads, {{dims.plain_dim, Share::kQuery}, {dims.rotary_dim, Share::kAll}}}});
    clip_scores(
        context, first_of_keys, parameters(), found, spec.heads,
        {{spec.heads, {{dims.plain_dim, Share::kKey}}}, {spec.heads, {{dims.value_dim, Share::kNothing}}}});
  }
  return attention_out(context,
                       {.name = spec.name,
                        .inputs = spec.heads * dims.value_dim,
                        .hidden_size = spec.hidden_size,
                        .bias = spec.bias},
                       out);
}

}  // namespace strata::layers
