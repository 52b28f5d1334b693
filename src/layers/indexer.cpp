#include "layers/indexer.h"

#include <cmath>

#include "base/error.h"
#include "graph/reshard.h"
#include "layers/context_parallel.h"
#include "ops/chosen_share/chosen_share.h"
#include "ops/rope/rope.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace strata::layers {
namespace {

using graph::MetricKind;
using graph::ParameterRole;

const graph::Placement kEverywhere = graph::Placement::replicated();

// All rows of a rank's part of them, where the tensor axis splits rows. Every rank makes the same gradient of them.
ValueId whole_rows(Context& context, ValueId rows) {
  return context.settings.sequence_parallel ? graph::reshard(context.graph, rows, Axis::kTensor, kEverywhere)
                                            : rows;
}

ValueId projection(Context& context, const IndexerSpec& spec, const char* name, int64_t inputs,
                   int64_t outputs, ValueId x, bool f32_output) {
  return linear(context,
                {.name = spec.name + name,
                 .role = ParameterRole::kIndexer,
                 .inputs = inputs,
                 .outputs = outputs,
                 .parallel = LinearSpec::Parallel::kReplicated,
                 .attrs = {.f32_output = f32_output, .detached = true}},
                x);
}

ValueId rotated(Context& context, const IndexerSpec& spec, ValueId x) {
  if (spec.rope_table == kNone) return x;
  return graph::add<ops::Rope>(
             context.graph,
             {.x = x, .table = spec.rope_table, .positions = context.inputs.batch[Column::kPositions]},
             {.head_dim = spec.dims.dim, .adjacent = spec.dims.adjacent_pairs})
      .qkv;
}

ops::IndexerAttrs attrs_of(const Context& context, const IndexerSpec& spec) {
  const IndexerDims& dims = spec.dims;
  return {.sequence_length = context.rows.length,
          .kv_length = context.rows.length,
          .count = dims.count,
          .scale = 1 / std::sqrt(static_cast<double>(dims.heads * dims.dim))};
}

// Of whole sequences.
ValueId keys_of(Context& context, const Indexed& scores) {
  return whole_sequences(context, scores.k, context.rows.length);
}

ValueId rank_of(Context& context) {
  return shares_sequences(context) ? graph::rank_block(context.graph) : kNone;
}

// The sum of all indexers' losses.
ValueId loss_sum(Context& context) {
  const ValueId there = context.graph.metric(MetricKind::kIndexerLossSum);
  if (there != kNone) return there;
  context.results.losses.push_back(context.graph.add_metric(MetricKind::kIndexerLossSum, DType::kF64, 1));
  return context.results.losses.back();
}

}  // namespace

Indexed indexed(Context& context, const IndexerSpec& spec, ValueId x, ValueId query_latent) {
  const IndexerDims& dims = spec.dims;
  const size_t first = context.graph.parameters().size();
  const ValueId q =
      projection(context, spec, ".q", spec.query_rank, dims.heads * dims.dim, query_latent, false);
  const ValueId k = norm(context,
                         {.name = spec.name + ".k_norm",
                          .hidden_size = dims.dim,
                          .eps = 1e-6,
                          .kind = NormSpec::Kind::kLayer},
                         projection(context, spec, ".k", spec.hidden_size, dims.dim, x, false))
                        .y;
  const ValueId weights = projection(context, spec, ".weights", spec.hidden_size, dims.heads, x, true);
  for (size_t i = first; i < context.graph.parameters().size(); ++i)
    context.graph.parameters()[i].of_indexer = true;
  return {rotated(context, spec, q), rotated(context, spec, whole_rows(context, k)),
          whole_rows(context, weights)};
}

ValueId chosen_keys(Context& context, const IndexerSpec& spec, const Indexed& scores) {
  Graph& graph = context.graph;
  ops::IndexerAttrs attrs = attrs_of(context, spec);
  if (context.mode == Mode::kSequences) {
    return graph::add<ops::SelectKeys>(graph,
                                       {.q = scores.q,
                                        .k = keys_of(context, scores),
                                        .weights = scores.weights,
                                        .kv_begin = context.inputs.batch[Column::kKvBegin],
                                        .rank = rank_of(context)},
                                       attrs)
        .chosen;
  }
  const ValueId keys = cache(context, spec.name + ".keys", context.rows.cache_capacity, spec.dims.dim, false);
  return ops::cached_select_keys(graph, {scores.q, scores.k, scores.weights},
                                 {keys, context.inputs.cache_position, context.inputs.cache_slot}, attrs);
}

void add_indexer_loss(Context& context, const IndexerSpec& spec, const Indexed& scores,
                      const MainAttention& attention) {
  Graph& graph = context.graph;
  const auto whole = [&](ValueId heads) {
    return heads == kNone ? kNone : graph::reshard(graph, heads, Axis::kTensor, kEverywhere);
  };
  graph::add_into<ops::IndexerLoss>(
      graph,
      {.q = scores.q,
       .k = keys_of(context, scores),
       .weights = scores.weights,
       .targets = context.inputs.batch[Column::kTargets],
       .chosen = attention.chosen,
       .mass = whole(attention.mass),
       .main_q = whole(attention.q),
       .main_kv = whole(attention.kv),
       .main_lse = whole(attention.lse),
       .kv_begin = context.inputs.batch[Column::kKvBegin],
       .rank = rank_of(context)},
      {.sum = loss_sum(context)},
      {.indexer = attrs_of(context, spec), .head_dim = attention.head_dim, .main_scale = attention.scale});
}

void add_indexer_share(Context& context, ValueId chosen_lse, const MainAttention& attention, int64_t heads) {
  ValueId sum = context.graph.metric(MetricKind::kIndexerShareSum);
  if (sum == kNone) sum = context.graph.add_metric(MetricKind::kIndexerShareSum, DType::kF64, 1);
  graph::add_into<ops::ChosenShare>(
      context.graph,
      {.chosen_lse = chosen_lse, .lse = attention.lse, .targets = context.inputs.batch[Column::kTargets]},
      {.sum = sum}, {.heads = heads, .sequence_length = context.rows.length});
}

}  // namespace strata::layers
