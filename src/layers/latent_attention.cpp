#include "layers/latent_attention.h"

#include "base/error.h"
#include "layers/context_parallel.h"
#include "ops/context_attention/context_attention.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/rope/rope.h"

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

ValueId queries_of(Context& context, const LatentAttentionSpec& spec, ValueId x,
                   const ops::Latents& latents) {
  const LatentDims& dims = spec.dims;
  const bool of_latent = dims.query_rank > 0;
  const ValueId q = linear(context,
                           {.name = spec.name + ".q",
                            .role = of_latent ? ParameterRole::kLatentUp : ParameterRole::kLatentIn,
                            .inputs = of_latent ? dims.query_rank : spec.hidden_size,
                            .outputs = spec.heads * dims.head_dim()},
                           of_latent ? latents.query : x);
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

// Attention over sequences. The rotated part of keys is whole on the tensor axis.
ValueId attend(Context& context, const LatentAttentionSpec& spec, ValueId q, const ops::Latents& latents,
               const ops::LatentAttrs& attrs, ops::GreatestScores* greatest) {
  Graph& graph = context.graph;
  const int64_t length = context.rows.length;
  const ValueId kv_begin = context.inputs.batch[Column::kKvBegin];
  const ops::AttentionOptions options{.attrs = {.head_dim = attrs.head_dim(),
                                                .sequence_length = length,
                                                .scale = spec.scale,
                                                .value_dim = attrs.value_dim},
                                      .kv_end = context.inputs.kv_end,
                                      .greatest = greatest};
  const bool shared = shares_sequences(context);
  const ContextKind kind = context.settings.context_kind;
  if (shared && kind != ContextKind::kUlysses) {
    const ValueId kv = keys_values_of(context, spec, latents, attrs);
    return kind == ContextKind::kRing ? ops::ring_attention(graph, q, kv, kv_begin, options)
                                      : ops::context_attention(graph, q, kv, kv_begin, length, options);
  }
  const ValueId kv = linear(context, up_of(spec), latents.key_value);
  const ValueId qkv =
      graph::add<ops::LatentHeads>(graph, {.q = q, .kv = kv, .rotated = latents.rotated}, attrs).qkv;
  return shared ? shared_attention(context, spec.name, qkv, kv_begin, options)
                : ops::attention(graph, qkv, kv_begin, options);
}

}  // namespace

ValueId latent_attention(Context& context, const LatentAttentionSpec& spec, ValueId x) {
  require_layout(context, spec);
  const LatentDims& dims = spec.dims;
  ops::Latents latents = latents_of(context, spec, x);
  const auto parameters = [&] { return context.graph.parameters().size(); };
  const size_t first_of_queries = parameters();
  const ValueId q = queries_of(context, spec, x, latents);
  const size_t end_of_queries = parameters();
  ops::LatentAttrs attrs{dims.plain_dim, dims.rotary_dim, dims.value_dim};
  latents.rotated = gathered(context, latents.rotated);
  ValueId attended = kNone;
  if (context.mode == Mode::kSequences) {
    ops::GreatestScores scores{spec.name + ".greatest_scores"};
    const size_t first_of_keys = parameters();
    attended = attend(context, spec, q, latents, attrs, context.settings.score_limit > 0 ? &scores : nullptr);
    using Share = graph::Parameter::ScoreClip::Share;
    clip_scores(context, first_of_queries, end_of_queries, scores, spec.heads,
                {{spec.heads, {{dims.plain_dim, Share::kQuery}, {dims.rotary_dim, Share::kAll}}}});
    clip_scores(
        context, first_of_keys, parameters(), scores, spec.heads,
        {{spec.heads, {{dims.plain_dim, Share::kKey}}}, {spec.heads, {{dims.value_dim, Share::kNothing}}}});
  } else {
    attrs.sequence_length = context.rows.length;
    attrs.scale = spec.scale;
    latents.key_value = gathered(context, latents.key_value);
    const ValueId cached = cache(context, spec.name + ".latents", context.rows.cache_capacity,
                                 dims.rank + dims.rotary_dim, false);
    attended = ops::cached_latent_attention(
        context.graph, q, latents, projection_weight(context, up_of(spec)),
        {cached, context.inputs.cache_position, context.inputs.cache_slot}, attrs);
  }
  return attention_out(context,
                       {.name = spec.name,
                        .inputs = spec.heads * dims.value_dim,
                        .hidden_size = spec.hidden_size,
                        .bias = spec.bias},
                       attended);
}

}  // namespace strata::layers
