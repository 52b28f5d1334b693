// Attention within a sequence and to an encoder, with projections.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "graph/reshard.h"
#include "layers/context_parallel.h"
#include "layers/projections.h"
#include "ops/clamp/clamp.h"
#include "ops/constant/constant.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gate/gate.h"
#include "ops/linear/linear.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/rope/rope.h"
#include "ops/share_heads/share_heads.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;

namespace {

ops::AttentionOptions options_of(const Context& context, const AttentionSpec& spec) {
  return {
      .attrs = {.head_dim = spec.head_dim,
                .sequence_length = context.rows.length,
                .scale = spec.scale > 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(spec.head_dim)),
                .window = spec.window,
                .softcap = spec.softcap,
                .causal = context.causal,
                .bias_zero = spec.distance_zero,
                .chunked = spec.chunked && context.mode == Mode::kCached},
      .kv_end = context.inputs.kv_end,
      .bias = spec.distance_bias};
}

ValueId project_out(Context& context, const AttentionSpec& spec, ValueId attended) {
  return attention_out(context,
                       {.name = spec.name,
                        .inputs = spec.heads * spec.head_dim,
                        .hidden_size = spec.hidden_size,
                        .bias = spec.out_bias},
                       attended);
}

// [sequences · encoder_length, k | v] of an encoder's output.
ValueId encoder_keys_values(Context& context, const AttentionSpec& spec, ValueId encoded) {
  const int64_t kv_width = spec.kv_heads * spec.head_dim;
  return linear(context,
                {.name = spec.name + ".kv",
                 .role = ParameterRole::kCrossKeyValue,
                 .inputs = spec.hidden_size,
                 .outputs = 2 * kv_width,
                 .bias = spec.bias,
                 .segments = {kv_width, kv_width}},
                encoded);
}

// Each rank of the tensor axis has whole heads, as many as the others; of keys and values one may be read by
// several ranks.
void require_heads_for_all(const Context& context, const AttentionSpec& spec) {
  const int64_t ranks = context.graph.mesh().size(Axis::kTensor);
  if (spec.heads % ranks != 0) {
    throw ConfigError("[{}] {} ranks cannot share the {} attention heads of {}; take a divisor of {}",
                      context.words.tensor, ranks, spec.heads, spec.name, spec.heads);
  }
  if (spec.kv_heads % ranks != 0 && ranks % spec.kv_heads != 0) {
    throw ConfigError(
        "[{}] {} ranks cannot share the {} key-value heads of {}; take a divisor of {}, or a multiple",
        context.words.tensor, ranks, spec.kv_heads, spec.name, spec.kv_heads);
  }
}

// Ranks that read one head of keys and values.
int64_t copies_of_kv_heads(const Context& context, const AttentionSpec& spec) {
  return std::max<int64_t>(1, context.graph.mesh().size(Axis::kTensor) / spec.kv_heads);
}

// q, k and v of this rank's heads from x as it is gathered, if there are fewer key-value heads than ranks: all ranks
// have and compute all of them, and take those that their queries read.
ValueId project_shared(Context& context, const LinearSpec& fused, const AttentionSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  const int64_t q_width = fused.segments[0], kv_width = fused.segments[1];
  const auto project = [&](const char* name, int64_t first_row, std::vector<int64_t> segments, bool shared) {
    LinearSpec part = fused;
    part.name = spec.name + name;
    part.segments = std::move(segments);
    part.outputs = std::accumulate(part.segments.begin(), part.segments.end(), int64_t{0});
    part.parallel = shared ? LinearSpec::Parallel::kReplicated : LinearSpec::Parallel::kColumn;
    const size_t first = graph.parameters().size();
    const Projection made = add_projection(context, part);
    for (size_t i = first; i < graph.parameters().size(); ++i) {
      graph::Parameter& parameter = graph.parameters()[i];
      parameter.part.of = fused.name + (parameter.value == made.weight ? ".weight" : ".bias");
      parameter.part.first_row = first_row;
      parameter.part.first_segment = shared ? 1 : 0;
    }
    return ops::linear(graph, x, made.weight, made.bias);
  };
  const ValueId q = project(".q", 0, {q_width}, false);
  const ValueId kv = project(".kv", q_width, {kv_width, kv_width}, true);
  return graph::add<ops::ShareHeads>(
             graph, {.q = q, .kv = kv, .rank = graph::rank_block(graph)},
             {.axis = Axis::kTensor, .head_dim = spec.head_dim, .copies = copies_of_kv_heads(context, spec)})
      .qkv;
}

ops::CrossCache encoder_caches(Context& context, const AttentionSpec& spec) {
  const int64_t kv_width = spec.kv_heads * spec.head_dim;
  return {.keys = cache(context, spec.name + ".keys", context.rows.encoder_length, kv_width),
          .values = cache(context, spec.name + ".values", context.rows.encoder_length, kv_width),
          .slot = context.inputs.cache_slot};
}

}  // namespace

ValueId attention_out(Context& context, const AttentionOutSpec& spec, ValueId attended) {
  return linear(context,
                {.name = spec.name + ".out",
                 .role = ParameterRole::kAttentionOut,
                 .inputs = spec.inputs,
                 .outputs = spec.hidden_size,
                 .bias = spec.bias,
                 .parallel = LinearSpec::Parallel::kRow},
                attended);
}

void clip_scores(Context& context, size_t first, size_t end, const ops::GreatestScores& found,
                 int64_t kv_heads, const std::vector<graph::Parameter::ScoreClip::Heads>& rows) {
  if (found.value == kNone) return;
  Graph& graph = context.graph;
  for (size_t i = first; i < end; ++i) {
    graph::Parameter& parameter = graph.parameters()[i];
    const size_t begin = parameter.part.first_segment;
    const size_t count = std::max<size_t>(1, graph.value(parameter.value).segments.size());
    STRATA_CHECK(begin + count <= rows.size(), "{} has segments {} to {} of {}",
                 graph.value(parameter.value).name, begin, begin + count, rows.size());
    const auto from = rows.begin() + static_cast<std::ptrdiff_t>(begin);
    parameter.score_clip = {.scores = found.value,
                            .limit = context.settings.score_limit,
                            .kv_heads = kv_heads,
                            .rows = {from, from + static_cast<std::ptrdiff_t>(count)}};
  }
}

ValueId attention(Context& context, const AttentionSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  require_heads_for_all(context, spec);
  const int64_t q_width = spec.heads * spec.head_dim;
  const int64_t kv_width = spec.kv_heads * spec.head_dim;
  const LinearSpec fused{.name = spec.name + ".qkv",
                         .role = ParameterRole::kAttentionIn,
                         .inputs = spec.hidden_size,
                         .outputs = q_width + 2 * kv_width,
                         .bias = spec.bias,
                         .segments = {q_width, kv_width, kv_width}};
  const int64_t copies = copies_of_kv_heads(context, spec);
  ValueId gate = kNone;
  x = gathered(context, x);
  if (spec.output_gate) {
    gate = projected(context,
                     {.name = spec.name + ".gate",
                      .role = ParameterRole::kAttentionIn,
                      .inputs = spec.hidden_size,
                      .outputs = q_width,
                      .bias = spec.bias},
                     x);
  }
  const size_t first_projection = graph.parameters().size();
  ValueId qkv = copies > 1 ? project_shared(context, fused, spec, x) : projected(context, fused, x);
  const size_t end_of_projection = graph.parameters().size();
  if (spec.qk_norm != AttentionSpec::QkNorm::kAbsent) {
    const bool head = spec.qk_norm == AttentionSpec::QkNorm::kHead;
    if (!head && copies > 1) {
      throw ConfigError(
          "[{}] {} normalizes all of its {} key-value heads together, of which {} ranks would read some "
          "twice; take a divisor of {}",
          context.words.tensor, spec.name, spec.kv_heads, graph.mesh().size(Axis::kTensor), spec.kv_heads);
    }
    const double offset = spec.norm_weight_offset;
    const auto placed_as = on_tensor_axis(context, head ? kWhole : kRows);
    const ValueId q = norm_weight(context, spec.name + ".q_norm.weight", ParameterRole::kQueryNorm,
                                  head ? spec.head_dim : q_width, offset, placed_as);
    const ValueId k = norm_weight(context, spec.name + ".k_norm.weight", ParameterRole::kKeyNorm,
                                  head ? spec.head_dim : kv_width, offset, placed_as);
    qkv = ops::qk_norm(graph, qkv, q, k, spec.norm_eps, offset);
  }
  if (spec.clip_qkv > 0) qkv = graph::add<ops::Clamp>(graph, {.x = qkv}, {spec.clip_qkv}).y;
  if (spec.rope_table != kNone) {
    qkv = graph::add<ops::Rope>(
              graph,
              {.x = qkv, .table = spec.rope_table, .positions = context.inputs.batch[Column::kPositions]},
              {.head_dim = spec.head_dim, .adjacent = spec.adjacent_pairs})
              .qkv;
  }
  if (spec.plain_qk_norm) {
    const ValueId ones = ops::constant(graph, spec.name + ".ones", spec.head_dim, 1);
    qkv = ops::qk_norm(graph, qkv, ones, ones, spec.norm_eps);
  }
  if (spec.temper.floor > 0)
    qkv = graph::add<ops::Temper>(graph, {.qkv = qkv, .positions = context.inputs.batch[Column::kPositions]},
                                  spec.temper)
              .y;
  ops::AttentionOptions options = options_of(context, spec);
  if (spec.sinks) {
    options.sinks = add_parameter(context, spec.name + ".sinks", ParameterRole::kBias, {spec.heads},
                                  Init::Kind::kZeros, on_tensor_axis(context, kRows));
  }
  ValueId attended = kNone;
  ops::GreatestScores scores{spec.name + ".greatest_scores"};
  if (context.settings.score_limit > 0) options.greatest = &scores;
  if (context.mode == Mode::kSequences) {
    const ValueId begins =
        spec.chunked ? context.inputs.chunk_begins : context.inputs.batch[Column::kKvBegin];
    attended = shares_sequences(context) ? shared_attention(context, spec.name, qkv, begins, options)
                                         : ops::attention(graph, qkv, begins, options);
  } else {
    attended = ops::cached_attention(
        graph, qkv,
        {.keys = cache(context, spec.name + ".keys", context.rows.cache_capacity, kv_width * copies),
         .values = cache(context, spec.name + ".values", context.rows.cache_capacity, kv_width * copies),
         .position = context.inputs.cache_position,
         .slot = context.inputs.cache_slot},
        options);
  }
  using Share = graph::Parameter::ScoreClip::Share;
  clip_scores(context, first_projection, end_of_projection, scores, spec.kv_heads,
              {{spec.heads, {{spec.head_dim, Share::kQuery}}},
               {spec.kv_heads, {{spec.head_dim, Share::kKey}}},
               {spec.kv_heads, {{spec.head_dim, Share::kNothing}}}});
  if (gate != kNone)
    attended = graph::add<ops::Gate>(graph, {.x = attended, .gate = gate}, {GateKind::kSigmoid}).y;
  return project_out(context, spec, attended);
}

ValueId cross_attention(Context& context, const AttentionSpec& spec, ValueId x, ValueId encoded) {
  Graph& graph = context.graph;
  require_heads_for_all(context, spec);
  STRATA_CHECK(copies_of_kv_heads(context, spec) == 1, "{} reads an encoder with fewer heads than ranks",
               spec.name);
  const ValueId q = linear(context,
                           {.name = spec.name + ".q",
                            .role = ParameterRole::kCrossQuery,
                            .inputs = spec.hidden_size,
                            .outputs = spec.heads * spec.head_dim,
                            .bias = spec.bias},
                           x);
  ops::AttentionOptions options = options_of(context, spec);
  options.kv_end = context.inputs.cross_kv_end;
  ValueId attended = kNone;
  if (context.mode != Mode::kSequences) {
    attended = ops::cached_cross_attention(graph, q, encoder_caches(context, spec),
                                           context.inputs.encoder_end, options);
  } else {
    const ValueId kv = encoder_keys_values(context, spec, encoded);
    attended = shares_sequences(context)
                   ? shared_cross_attention(context, spec.name, q, kv, options)
                   : ops::cross_attention(graph, q, kv, context.inputs.batch[Column::kCrossKvBegin], options);
  }
  return project_out(context, spec, attended);
}

void store_cross(Context& context, const AttentionSpec& spec, ValueId encoded) {
  const auto [keys, values, slot] = encoder_caches(context, spec);
  const ValueId kv = encoder_keys_values(context, spec, encoded);
  graph::add_into<ops::StoreCross>(context.graph, {.kv = kv, .keys = keys, .values = values, .slot = slot},
                                   {.keys = keys, .values = values});
}

}  // namespace strata::layers
