#include "layers/layers.h"

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "layers/projections.h"
#include "ops/activation/activation.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;
using graph::Placement;
using graph::Placements;
using graph::Value;

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

ValueId reduced(Context& context, ValueId terms) {
  return graph::reshard(context.graph, terms, Axis::kTensor,
                        context.settings.sequence_parallel ? kRows : kWhole);
}

ValueId add_parameter(Context& context, const std::string& name, ParameterRole role, Shape shape,
                      Init::Kind start, const Placements& placements, std::vector<int64_t> segments) {
  const ValueId id = context.graph.add_parameter(name, role, shape, {start}, placements, std::move(segments));
  context.graph.parameters().back().of_encoder = context.of_encoder;
  return id;
}

ValueId norm_weight(Context& context, const std::string& name, ParameterRole role, int64_t width,
                    double offset, const Placements& placements) {
  return add_parameter(context, name, role, {width}, offset == 1 ? Init::Kind::kZeros : Init::Kind::kOnes,
                       placements);
}

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
