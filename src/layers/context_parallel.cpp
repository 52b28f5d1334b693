#include "layers/context_parallel.h"

#include "base/error.h"
#include "graph/reshard.h"
#include "layers/projections.h"
#include "ops/context_attention/context_attention.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/take_part/take_part.h"

namespace strata::layers {
namespace {

int64_t ranks_of(const Context& context) {
  return context.graph.mesh().size(Axis::kContext);
}

// Whole heads for each rank, as many as for the others.
void require_heads(const Context& context, const std::string& name, int64_t heads, int64_t kv_heads) {
  const int64_t tensor = context.graph.mesh().size(Axis::kTensor), ranks = ranks_of(context) * tensor;
  for (const auto& [count, what] :
       {std::pair{heads, "attention heads"}, std::pair{kv_heads, "key-value heads"}}) {
    if (count % ranks == 0) continue;
    throw ConfigError(
        "[{}] with {} = \"ulysses\" {} ranks{} share the {} {} of {}, which do not divide; take degrees that "
        "divide {}, or \"all_gather\"",
        context.words.context, context.words.context_kind, ranks,
        tensor > 1 ? fmt::format(" (context {} x tensor {})", ranks_of(context), tensor) : "", count, what,
        name, count);
  }
}

ValueId to_heads(Context& context, ValueId rows, int64_t length) {
  return graph::reshard(context.graph, rows, Axis::kContext, kHeads, length);
}
ValueId to_rows(Context& context, ValueId heads, int64_t length) {
  return graph::reshard(context.graph, heads, Axis::kContext, kRows, length);
}

int64_t heads_in(const Context& context, ValueId x, size_t part, int64_t head_dim) {
  const graph::Value& value = context.graph.value(x);
  return (value.segments.empty() ? value.shape[1] : value.segments[part]) / head_dim;
}

}  // namespace

bool shares_sequences(const Context& context) {
  return context.settings.share_sequences && ranks_of(context) > 1;
}

namespace {

void require_rows(const Context& context) {
  const graph::Mesh& mesh = context.graph.mesh();
  const int64_t ranks = mesh.size(Axis::kTensor), shares = shares_sequences(context) ? ranks_of(context) : 1;
  if (!context.settings.sequence_parallel || ranks == 1) return;
  const Words& words = context.words;
  const int64_t sequences = context.rows.sequences / mesh.batch_ranks();
  for (const int64_t length : {context.rows.encoder_length, context.rows.length}) {
    const int64_t rows = sequences * length / shares;
    if (rows % ranks == 0) continue;
    throw ConfigError(
        "[{0}] {1} ranks of {2} share the {3} tokens of a micro-batch ({4} of {5}{6}), which do not divide; "
        "change {7} or {8}, or set {0} = false",
        words.sequence, ranks, words.tensor, rows, sequences, length,
        shares > 1 ? fmt::format(", of which a rank of {} = {} has its share", words.context, shares) : "",
        words.sequence_length, words.micro_batch);
  }
}

void require_chunks(const Context& context) {
  const int64_t pieces = 2 * ranks_of(context);
  for (const int64_t length : {context.rows.encoder_length, context.rows.length}) {
    if (length % pieces == 0) continue;
    const int64_t below = length / pieces * pieces;
    throw ConfigError(
        "[{}] {} ranks share a sequence in {} equal chunks, which does not divide {} tokens; the nearest {} is {}{}",
        context.words.context, ranks_of(context), pieces, length, context.words.sequence_length,
        below > 0 ? fmt::format("{} or ", below) : "", below + pieces);
  }
}

}  // namespace

void require_pieces(const Context& context) {
  if (shares_sequences(context)) require_chunks(context);
  require_rows(context);
}

ValueId whole_sequences(Context& context, ValueId rows, int64_t length) {
  return shares_sequences(context) ? graph::reshard(context.graph, rows, Axis::kContext, kWhole, length)
                                   : rows;
}

ValueId held_of_sequences(Context& context, ValueId whole, int64_t length) {
  return shares_sequences(context) ? graph::reshard(context.graph, whole, Axis::kContext, kRows, length)
                                   : whole;
}

ValueId shared_attention(Context& context, const std::string& name, ValueId qkv, ValueId kv_begin,
                         const ops::AttentionOptions& options) {
  Graph& graph = context.graph;
  const int64_t length = context.rows.length, head_dim = options.attrs.head_dim;
  if (context.settings.context_kind == ContextKind::kUlysses) {
    require_heads(context, name, heads_in(context, qkv, 0, head_dim), heads_in(context, qkv, 1, head_dim));
    ops::AttentionOptions of_heads = options;
    if (options.sinks != kNone) {
      of_heads.sinks = graph::add<ops::TakePart>(
                           graph, {.x = options.sinks, .rank = graph::rank_block(graph)}, {Axis::kContext})
                           .part;
    }
    if (options.bias != kNone) of_heads.bias = graph::reshard(graph, options.bias, Axis::kContext, kRows);
    const ValueId attended = ops::attention(graph, to_heads(context, qkv, length), kv_begin, of_heads);
    return to_rows(context, attended, length);
  }
  const auto parts = graph::add<ops::SplitQkv>(graph, {.qkv = qkv});
  if (context.settings.context_kind == ContextKind::kRing) {
    if (options.bias != kNone) {
      throw ConfigError(
          "[{}] \"ring\" adds nothing to scores by distance, as {} does; take \"all_gather\" or \"ulysses\"",
          context.words.context_kind, name);
    }
    return ops::ring_attention(graph, parts.q, parts.kv, kv_begin, options);
  }
  return ops::context_attention(graph, parts.q, whole_sequences(context, parts.kv, length), kv_begin, length,
                                options);
}

ValueId shared_cross_attention(Context& context, const std::string& name, ValueId q, ValueId kv,
                               const ops::AttentionOptions& options) {
  Graph& graph = context.graph;
  const int64_t length = context.rows.encoder_length, head_dim = options.attrs.head_dim;
  if (context.settings.context_kind == ContextKind::kUlysses) {
    require_heads(context, name, heads_in(context, q, 0, head_dim), heads_in(context, kv, 0, head_dim));
    const ValueId attended =
        ops::cross_attention(graph, to_heads(context, q, context.rows.length), to_heads(context, kv, length),
                             context.inputs.batch[Column::kCrossKvBegin], options);
    return to_rows(context, attended, context.rows.length);
  }
  ops::AttentionOptions of_rows = options;
  of_rows.attrs.causal = false;
  return ops::context_attention(graph, q, whole_sequences(context, kv, length),
                                context.inputs.batch[Column::kCrossKvBegin], length, of_rows);
}

}  // namespace strata::layers
