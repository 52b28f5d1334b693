#include "layers/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "layers/context_parallel.h"
#include "ops/activation/activation.h"
#include "ops/clamp/clamp.h"
#include "ops/constant/constant.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/gate/gate.h"
#include "ops/linear/linear.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/rope/rope.h"
#include "ops/share_heads/share_heads.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;
using graph::Placement;
using graph::Placements;
using graph::Role;
using graph::Value;

namespace {

const Placement kWhole = Placement::replicated();
const Placement kRows = Placement::sharded(0);

// This placement on each of these axes that has several ranks; replicated on all others.
Placements placed(const graph::Mesh& mesh, std::initializer_list<Axis> axes, Placement placement) {
  Placements placements;
  placements.decide();
  for (const Axis axis : axes) {
    if (mesh.size(axis) > 1) placements.set(axis, placement);
  }
  return placements;
}

Placements on_tensor_axis(const Context& context, Placement placement) {
  return placed(context.graph.mesh(), {Axis::kTensor}, placement);
}

// The terms that the shards of a row-parallel weight give, added up.
ValueId reduced(Context& context, ValueId terms) {
  return graph::reshard(context.graph, terms, Axis::kTensor,
                        context.settings.sequence_parallel ? kRows : kWhole);
}

ValueId add_parameter(Context& context, const std::string& name, ParameterRole role, Shape shape,
                      Init::Kind start, const Placements& placements = {},
                      std::vector<int64_t> segments = {}) {
  const ValueId id = context.graph.add_parameter(name, role, shape, {start}, placements, std::move(segments));
  context.graph.parameters().back().of_encoder = context.of_encoder;
  return id;
}

ValueId norm_weight(Context& context, const std::string& name, ParameterRole role, int64_t width,
                    double offset, const Placements& placements = {}) {
  return add_parameter(context, name, role, {width}, offset == 1 ? Init::Kind::kZeros : Init::Kind::kOnes,
                       placements);
}

struct Projection {
  ValueId weight, bias;
};

Projection add_projection(Context& context, const LinearSpec& spec) {
  using Parallel = LinearSpec::Parallel;
  const bool column = spec.parallel == Parallel::kColumn, row = spec.parallel == Parallel::kRow;
  const Placement split = column ? Placement::sharded(0) : row ? Placement::sharded(1) : kWhole;
  Projection made{add_parameter(context, spec.name + ".weight", spec.role, {spec.outputs, spec.inputs},
                                Init::Kind::kNormal, on_tensor_axis(context, split), spec.segments),
                  kNone};
  if (!spec.bias) return made;
  const bool attention = spec.role == ParameterRole::kAttentionIn;
  made.bias = add_parameter(context, spec.name + ".bias",
                            attention ? ParameterRole::kAttentionInBias : ParameterRole::kBias,
                            {spec.outputs}, Init::Kind::kZeros,
                            on_tensor_axis(context, column ? Placement::sharded(0) : kWhole), spec.segments);
  return made;
}

// ops::document_ends of rows among the keys of whole sequences of `length`.
ValueId document_ends(Context& context, ValueId begins, ValueId key_begins, int64_t length) {
  Graph& graph = context.graph;
  const bool by_rows = context.settings.context_kind != ContextKind::kUlysses;
  return ops::document_ends(graph, begins,
                            by_rows ? whole_sequences(context, key_begins, length) : key_begins,
                            context.rows.sequences);
}

}  // namespace

namespace {

// Whether a graph of this context reads a column of the batch.
bool reads(const Context& context, Column column) {
  const bool encoder = context.rows.encoder_length > 0, trains = context.mode == Mode::kSequences;
  switch (column) {
    case Column::kEncoderTokens:
    case Column::kEncoderKvBegin:
      return encoder && context.mode != Mode::kCached;
    case Column::kTokens:
    case Column::kPositions:
      return context.mode != Mode::kEncoderPrefill;
    case Column::kTargets:
      return trains;
    case Column::kKvBegin:
      return trains && context.settings.document_mask;
    case Column::kCrossKvBegin:
      return trains && encoder;
    case Column::kSamples:
      return trains && context.settings.counts_samples;
  }
  return false;
}

graph::Placements placements_of(const Context& context, Column column) {
  // What writes a text is the same on all ranks of a batch.
  if (context.mode != Mode::kSequences) return {};
  graph::Placements placements = placed(context.graph.mesh(), {Axis::kReplicate, Axis::kShard}, kRows);
  // Ranks that have whole sequences for attention read the ranges of all keys there.
  const bool for_attention =
      column == Column::kKvBegin || column == Column::kEncoderKvBegin || column == Column::kCrossKvBegin;
  const bool of_rows = info(column).places != ColumnInfo::Places::kRow;
  if (shares_sequences(context) && of_rows &&
      !(for_attention && context.settings.context_kind == ContextKind::kUlysses))
    placements.set(Axis::kContext, kRows);
  return placements;
}

ValueId add_input(Graph& graph, std::string_view name, Role role, int64_t places,
                  const graph::Placements& placements = {}) {
  Value value;
  value.name = name;
  value.dtype = DType::kI32;
  value.shape = {places};
  value.role = role;
  value.placements = placements;
  return graph.add_value(std::move(value));
}

}  // namespace

void add_batch(Context& context) {
  require_pieces(context);
  Graph& graph = context.graph;
  const RowPlaces places{context.rows.length, context.rows.encoder_length};
  for (const ColumnInfo& each : kColumns) {
    const Column column = each.column;
    if (!reads(context, column)) continue;
    context.inputs.batch[column] =
        add_input(graph, each.name, Role::kInput, context.rows.sequences * places.of(column),
                  placements_of(context, column));
    graph.set_column(column, context.inputs.batch[column]);
  }
  const auto add_of_step = [&](bool wanted, const char* name, ValueId& value) {
    if (wanted) value = add_input(graph, name, Role::kStep, context.rows.sequences);
  };
  const bool cached = context.mode == Mode::kCached;
  add_of_step(cached, "cache_position", context.inputs.cache_position);
  add_of_step(context.mode != Mode::kSequences, "cache_slot", context.inputs.cache_slot);
  add_of_step(cached && context.rows.encoder_length > 0, "encoder_end", context.inputs.encoder_end);
  if (context.inputs.batch[Column::kCrossKvBegin] != kNone) {
    context.inputs.cross_kv_end =
        document_ends(context, context.inputs.batch[Column::kCrossKvBegin],
                      context.inputs.batch[Column::kEncoderKvBegin], context.rows.encoder_length);
  }
}

ValueId rows_of_stream(Context& context, ValueId of_all) {
  return context.settings.sequence_parallel ? graph::reshard(context.graph, of_all, Axis::kTensor, kRows)
                                            : of_all;
}

ValueId gathered(Context& context, ValueId stream) {
  return context.settings.sequence_parallel ? graph::reshard(context.graph, stream, Axis::kTensor, kWhole)
                                            : graph::enter_shards(context.graph, stream, Axis::kTensor);
}

void make_bidirectional(Context& context) {
  context.causal = false;
  if (context.inputs.batch[Column::kKvBegin] != kNone)
    context.inputs.kv_end = document_ends(context, context.inputs.batch[Column::kKvBegin],
                                          context.inputs.batch[Column::kKvBegin], context.rows.length);
}

void make_chunks(Context& context, int64_t size) {
  const bool by_rows = !shares_sequences(context) || context.settings.context_kind != ContextKind::kUlysses;
  const ValueId positions =
      by_rows ? context.inputs.batch[Column::kPositions]
              : whole_sequences(context, context.inputs.batch[Column::kPositions], context.rows.length);
  context.inputs.chunk_begins =
      graph::add<ops::ChunkBegins>(
          context.graph, {.positions = positions, .document_begins = context.inputs.batch[Column::kKvBegin]},
          {size})
          .begins;
}

ValueId new_tokens(Context& context) {
  ValueId& count = context.inputs.cache_count;
  if (count == kNone) count = add_input(context.graph, "cache_count", Role::kStep, context.rows.sequences);
  return count;
}

Context encoder_of(const Context& context) {
  Context side{.graph = context.graph,
               .of_encoder = true,
               .rows = {.length = context.rows.encoder_length,
                        .sequences = context.rows.sequences,
                        .target_length = context.rows.length},
               .settings = context.settings,
               .stages = context.stages,
               .words = context.words};
  const PerColumn<ValueId>& batch = context.inputs.batch;
  side.inputs.batch[Column::kTokens] = batch[Column::kEncoderTokens];
  side.inputs.batch[Column::kKvBegin] = batch[Column::kEncoderKvBegin];
  side.inputs.batch[Column::kTargets] = batch[Column::kTargets];
  side.inputs.batch[Column::kSamples] = batch[Column::kSamples];
  make_bidirectional(side);
  return side;
}

ValueId cache(Context& context, const std::string& name, int64_t capacity, int64_t width, bool by_heads) {
  Value value;
  value.name = name;
  value.dtype = context.settings.activations;
  value.shape = {context.rows.cache_slots > 0 ? context.rows.cache_slots : context.rows.sequences, capacity,
                 width};
  value.role = Role::kCache;
  if (by_heads) value.placements = on_tensor_axis(context, Placement::sharded(2));
  return context.graph.add_value(std::move(value));
}

ValueId projection_weight(Context& context, const LinearSpec& spec) {
  return add_projection(context, spec).weight;
}

ValueId projected(Context& context, const LinearSpec& spec, ValueId x) {
  const auto [weight, bias] = add_projection(context, spec);
  return ops::linear(context.graph, x, weight, bias, spec.attrs);
}

ValueId linear(Context& context, const LinearSpec& spec, ValueId x) {
  using Parallel = LinearSpec::Parallel;
  const auto [weight, bias] = add_projection(context, spec);
  if (spec.parallel == Parallel::kColumn) x = gathered(context, x);
  if (spec.parallel != Parallel::kRow || context.graph.mesh().size(Axis::kTensor) == 1)
    return ops::linear(context.graph, x, weight, bias, spec.attrs);
  // The bias counts once, and not once a term.
  const ValueId y = reduced(context, ops::linear(context.graph, x, weight, kNone, spec.attrs));
  return bias == kNone ? y : graph::add<ops::AddRow>(context.graph, {.x = y, .table = bias}).y;
}

ops::Normed norm(Context& context, const NormSpec& spec, ValueId x, ValueId residual) {
  Graph& graph = context.graph;
  if (spec.kind == NormSpec::Kind::kPlainLayer) {
    const ValueId ones = ops::constant(graph, spec.name + ".ones", spec.hidden_size, 1);
    const ValueId zeros = ops::constant(graph, spec.name + ".zeros", spec.hidden_size, 0);
    return ops::layer_norm(graph, x, residual, ones, zeros, spec.eps);
  }
  const ValueId weight = norm_weight(context, spec.name + ".weight",
                                     spec.is_final ? ParameterRole::kFinalNorm : ParameterRole::kNorm,
                                     spec.hidden_size, spec.weight_offset);
  if (spec.kind == NormSpec::Kind::kRms)
    return ops::rms_norm(graph, x, residual, weight, spec.eps, spec.weight_offset);
  const ValueId bias = add_parameter(context, spec.name + ".bias",
                                     spec.is_final ? ParameterRole::kFinalNormBias : ParameterRole::kBias,
                                     {spec.hidden_size}, Init::Kind::kZeros);
  return ops::layer_norm(graph, x, residual, weight, bias, spec.eps);
}

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

ValueId ffn(Context& context, const FfnSpec& spec, ValueId x) {
  const int64_t ranks = context.graph.mesh().size(Axis::kTensor);
  if (spec.intermediate_size % ranks != 0) {
    throw ConfigError(
        "[{}] {} ranks cannot share the feed-forward width {} of {} equally; take a divisor of it, or change "
        "that size",
        context.words.tensor, ranks, spec.intermediate_size, spec.name);
  }
  const ValueId up =
      linear(context,
             {.name = spec.name + ".up",
              .role = ParameterRole::kFfnIn,
              .inputs = spec.hidden_size,
              .outputs = spec.gated ? 2 * spec.intermediate_size : spec.intermediate_size,
              .bias = spec.bias,
              .segments = spec.gated ? std::vector<int64_t>{spec.intermediate_size, spec.intermediate_size}
                                     : std::vector<int64_t>{}},
             x);
  const ValueId hidden =
      spec.gated ? ops::gated(context.graph, ops::scale_parts(context.graph, up, {spec.gate_multiplier, 1}),
                              spec.activation)
                 : ops::activation(context.graph, up, spec.activation);
  const ValueId down = linear(context,
                              {.name = spec.name + ".down",
                               .role = ParameterRole::kFfnOut,
                               .inputs = spec.intermediate_size,
                               .outputs = spec.hidden_size,
                               .bias = spec.bias,
                               .parallel = LinearSpec::Parallel::kRow},
                              hidden);
  return ops::scale_parts(context.graph, down, {spec.out_multiplier});
}

namespace {

// Rows of the batch's parts.
Value received_rows(const Context& context, std::string name, DType dtype, int64_t width) {
  const graph::Mesh& mesh = context.graph.mesh();
  Value value;
  value.name = std::move(name);
  value.dtype = dtype;
  value.shape = {context.rows.sequences * context.rows.length, width};
  value.placements = placed(mesh, {Axis::kReplicate, Axis::kShard}, kRows);
  if (context.settings.share_sequences && mesh.size(Axis::kContext) > 1)
    value.placements.set(Axis::kContext, kRows);
  value.passage = graph::Value::Passage::kReceived;
  return value;
}

}  // namespace

ValueId received(Context& context, std::string name, int64_t width) {
  Value value = received_rows(context, std::move(name), context.settings.activations, width);
  if (context.settings.sequence_parallel && context.graph.mesh().size(Axis::kTensor) > 1)
    value.placements.set(Axis::kTensor, kRows);
  return context.graph.add_value(std::move(value));
}

ValueId received_choice(Context& context, std::string name, int64_t count) {
  return context.graph.add_value(received_rows(context, std::move(name), DType::kI32, count));
}

ValueId embedding_table(Context& context, const std::string& name, ParameterRole role, int64_t rows,
                        int64_t width) {
  const bool of_vocabulary = role == ParameterRole::kEmbedding || role == ParameterRole::kHead;
  const Placement split = of_vocabulary                           ? kRows
                          : role == ParameterRole::kDistanceTable ? Placement::sharded(1)
                                                                  : kWhole;
  const ValueId table =
      add_parameter(context, name, role, {rows, width}, Init::Kind::kNormal, on_tensor_axis(context, split));
  if (of_vocabulary) context.graph.value(table).sharding.padding.uneven = Axis::kTensor;
  return table;
}

ValueId vocabulary_bias(Context& context, const std::string& name, ValueId table) {
  const Value like = context.graph.value(table);
  const ValueId bias = add_parameter(context, name, ParameterRole::kBias, {like.shape[0]}, Init::Kind::kZeros,
                                     like.placements);
  context.graph.value(bias).sharding.padding = like.sharding.padding;
  return bias;
}

ValueId embedding(Context& context, ValueId table, const EmbeddingSpec& spec) {
  Graph& graph = context.graph;
  ops::EmbeddingOptions look_up{.scale = spec.scale, .padding_id = spec.padding_id};
  look_up.vocab_start = ops::vocab_start(graph, table, Axis::kTensor);
  const ValueId positions = spec.position_table == kNone
                                ? kNone
                                : rows_of_stream(context, context.inputs.batch[Column::kPositions]);
  const ValueId tokens = spec.tokens != kNone ? spec.tokens : context.inputs.batch[Column::kTokens];
  if (look_up.vocab_start == kNone) {
    look_up.positions = positions;
    look_up.position_table = spec.position_table;
    return ops::embedding(graph, rows_of_stream(context, tokens), table, context.settings.activations,
                          look_up);
  }
  const ValueId x =
      reduced(context, ops::embedding(graph, tokens, table, context.settings.activations, look_up));
  if (positions == kNone) return x;
  // Once, and not once a shard.
  return graph::add_sum(graph, x,
                        ops::embedding(graph, positions, spec.position_table, context.settings.activations));
}

}  // namespace strata::layers
