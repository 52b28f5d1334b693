// What programs read: columns of the batch, numbers of the step, caches, and rows from other stages.
#include <string_view>
#include <utility>

#include "graph/reshard.h"
#include "layers/context_parallel.h"
#include "layers/projections.h"
#include "ops/cross_attention/cross_attention.h"

namespace strata::layers {

using graph::Placement;
using graph::Role;
using graph::Value;

namespace {

// ops::document_ends of rows among the keys of whole sequences of `length`.
ValueId document_ends(Context& context, ValueId begins, ValueId key_begins, int64_t length) {
  Graph& graph = context.graph;
  const bool by_rows = context.settings.context_kind != ContextKind::kUlysses;
  return ops::document_ends(graph, begins,
                            by_rows ? whole_sequences(context, key_begins, length) : key_begins,
                            context.rows.sequences);
}

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

ValueId received(Context& context, std::string name, int64_t width) {
  Value value = received_rows(context, std::move(name), context.settings.activations, width);
  if (context.settings.sequence_parallel && context.graph.mesh().size(Axis::kTensor) > 1)
    value.placements.set(Axis::kTensor, kRows);
  return context.graph.add_value(std::move(value));
}

ValueId received_choice(Context& context, std::string name, int64_t count) {
  return context.graph.add_value(received_rows(context, std::move(name), DType::kI32, count));
}

}  // namespace strata::layers
