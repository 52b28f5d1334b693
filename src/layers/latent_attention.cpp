#include "layers/latent_attention.h"

#include "base/error.h"
#include "layers/context_parallel.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/rope/rope.h"

namespace strata::layers {
namespace {

using graph::ParameterRole;

void require_layout(const Context& context, const LatentAttentionSpec& spec) {
  if (shares_sequences(context)) {
    throw ConfigError(
        "[{0}] {1} ranks share each sequence, and latent attention ({2}) needs whole sequences; set {0} = 1",
        context.words.context, context.graph.mesh().size(Axis::kContext), spec.name);
  }
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

}  // namespace

ValueId latent_attention(Context& context, const LatentAttentionSpec& spec, ValueId x) {
  require_layout(context, spec);
  Graph& graph = context.graph;
  const LatentDims& dims = spec.dims;
  ops::Latents latents = latents_of(context, spec, x);
  const ValueId q = queries_of(context, spec, x, latents);
  const LinearSpec up{.name = spec.name + ".kv",
                      .role = ParameterRole::kLatentUp,
                      .inputs = dims.rank,
                      .outputs = spec.heads * (dims.plain_dim + dims.value_dim),
                      .segments = {spec.heads * dims.plain_dim, spec.heads * dims.value_dim}};
  ops::LatentAttrs attrs{dims.plain_dim, dims.rotary_dim, dims.value_dim};
  latents.rotated = gathered(context, latents.rotated);
  ValueId attended = kNone;
  if (context.mode == Mode::kSequences) {
    const ValueId kv = linear(context, up, latents.key_value);
    const ValueId qkv =
        graph::add<ops::LatentHeads>(graph, {.q = q, .kv = kv, .rotated = latents.rotated}, attrs).qkv;
    attended = ops::attention(graph, qkv, context.inputs.batch[Column::kKvBegin],
                              {.attrs = {.head_dim = dims.head_dim(),
                                         .sequence_length = context.rows.length,
                                         .scale = spec.scale,
                                         .value_dim = dims.value_dim},
                               .kv_end = context.inputs.kv_end});
  } else {
    attrs.sequence_length = context.rows.length;
    attrs.scale = spec.scale;
    latents.key_value = gathered(context, latents.key_value);
    const ValueId cached = cache(context, spec.name + ".latents", context.rows.cache_capacity,
                                 dims.rank + dims.rotary_dim, false);
    attended = ops::cached_latent_attention(
        graph, q, latents, projection_weight(context, up),
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
