#include "models/decoder.h"

#include <cmath>

#include "models/parametrization.h"

namespace strata::models {
namespace {

// √d in the type of the activations, as a table of that type would be multiplied by.
double embedding_scale(const ModelConfig& config, DType activations) {
  if (!config.scaled_embedding) return 1;
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  return activations == DType::kBF16 ? static_cast<float>(BF16(root)) : root;
}

layers::AttentionSpec attention_of(const ModelConfig& config) {
  return {.hidden_size = config.hidden_size,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .bias = config.qkv_bias,
          .out_bias = config.out_bias,
          .qk_norm = config.qk_norm,
          .norm_eps = config.norm_eps,
          .norm_weight_offset = config.norm_weight_offset,
          .clip_qkv = config.clip_qkv,
          .scale = config.attention_scalar > 0 ? 1 / std::sqrt(config.attention_scalar) : 0,
          .softcap = config.attention_softcap};
}

layers::StackSpec stack_of(const ModelConfig& config) {
  return {.layers = config.layers,
          .norm_placement = config.norm_placement,
          .norm = {.hidden_size = config.hidden_size,
                   .eps = config.norm_eps,
                   .kind = config.norm,
                   .weight_offset = config.norm_weight_offset},
          .attention = attention_of(config),
          .ffn = {.hidden_size = config.hidden_size,
                  .intermediate_size = config.intermediate_size,
                  .bias = config.ffn_bias,
                  .activation = config.activation,
                  .gated = config.gated}};
}

// The positions that a program knows.
int64_t positions_in(const layers::Context& context) {
  return context.mode == layers::Mode::kCached ? context.cache_capacity : context.sequence_length;
}

void rotate(const ModelConfig& config, layers::Context& context, layers::StackSpec& spec) {
  graph::Graph& graph = context.graph;
  spec.attention.rope_table = ops::rope_table(graph, positions_in(context), config.rotary_dim(), config.rope);
  if (config.sliding_window.size == 0) return;
  spec.window_attention = spec.attention;
  spec.window_attention.window = config.sliding_window.size;
  if (config.window_rope) {
    spec.window_attention.rope_table = ops::rope_table(graph, positions_in(context), config.rotary_dim(),
                                                       *config.window_rope, "sliding_window_rope_table");
  }
  spec.is_windowed = [&config](int64_t layer) { return config.sliding_window.at(layer); };
}

// Scores of a stack by distance: from its farthest key before a row to the row, or to the farthest behind it.
void add_distances(const ModelConfig& config, layers::Context& context, layers::StackSpec& spec) {
  const int64_t farthest = positions_in(context) - 1;
  const auto table = layers::embedding_table(context, spec.prefix + "relative_bias.weight",
                                             graph::ParameterRole::kDistanceTable, config.distance_buckets,
                                             config.heads, true);
  spec.attention.distance_bias = ops::relative_bias(context.graph, table,
                                                    {.max_distance = config.max_distance,
                                                     .bidirectional = !context.causal,
                                                     .first = -farthest,
                                                     .last = context.causal ? 0 : farthest});
  spec.attention.distance_zero = farthest;
}

graph::ValueId head_table(const ModelConfig& config, layers::Context& context, graph::ValueId embedding) {
  if (config.tied) return embedding;
  return layers::embedding_table(context, "head.weight", graph::ParameterRole::kHead, config.vocab_size,
                                 config.hidden_size);
}

graph::ValueId token_table(const ModelConfig& config, layers::Context& context) {
  return layers::embedding_table(context, "embedding.weight", graph::ParameterRole::kEmbedding,
                                 config.vocab_size, config.hidden_size);
}

layers::NormSpec norm_named(const layers::StackSpec& spec, const char* name) {
  layers::NormSpec norm = spec.norm;
  norm.name = name;
  return norm;
}

// BERT's head: what it reads passes a dense layer, an activation and a norm of its own.
Hidden transformed(const ModelConfig& config, layers::Context& context, const layers::StackSpec& spec,
                   graph::ValueId hidden, graph::ValueId head) {
  const auto dense = layers::linear(context,
                                    {.name = "head_transform",
                                     .role = graph::ParameterRole::kHeadTransform,
                                     .inputs = config.hidden_size,
                                     .outputs = config.hidden_size,
                                     .bias = true,
                                     .parallel = layers::LinearSpec::Parallel::kReplicated},
                                    hidden);
  const auto bent = ops::activation(context.graph, dense, config.activation);
  const auto values = layers::norm(context, norm_named(spec, "head_norm"), bent).y;
  const auto bias = context.graph.add_parameter("head.bias", graph::ParameterRole::kBias, {config.vocab_size},
                                                {graph::Init::Kind::kZeros});
  return {values, head, bias};
}

}  // namespace

Hidden build_stack(const ModelConfig& config, layers::Context& context) {
  graph::Graph& graph = context.graph;
  if (config.architecture == Architecture::kEncoder) layers::make_bidirectional(context);
  const auto table = token_table(config, context);
  layers::StackSpec spec = stack_of(config);
  ops::EmbeddingOptions look_up{.scale = embedding_scale(config, context.activations),
                                .padding_id = config.pad_id.value_or(-1)};
  if (config.positions == Positions::kLearned) {
    look_up.positions = layers::rows_of_stream(context, context.positions);
    look_up.position_table =
        layers::embedding_table(context, "positions.weight", graph::ParameterRole::kPositionTable,
                                config.max_positions, config.hidden_size);
  } else {
    rotate(config, context, spec);
  }
  const auto tokens = layers::rows_of_stream(context, context.tokens);
  auto embedded = ops::embedding(graph, tokens, table, context.activations, look_up);
  if (config.token_types > 0) {
    const auto types =
        layers::embedding_table(context, "token_types.weight", graph::ParameterRole::kTypeTable,
                                config.token_types, config.hidden_size);
    embedded = ops::add_row(graph, embedded, types, 0);
  }
  if (config.embedding_norm) embedded = layers::norm(context, norm_named(spec, "embedding_norm"), embedded).y;
  const auto hidden = layers::stack(context, spec, embedded);
  const auto head = head_table(config, context, table);
  const Hidden out = config.head_transform ? transformed(config, context, spec, hidden, head)
                                           : Hidden{hidden, head, graph::kNone, config.logits_softcap};
  apply_init(config, graph);
  return out;
}

Hidden build_encoder_decoder(const ModelConfig& config, layers::Context& context) {
  graph::Graph& graph = context.graph;
  const auto table = token_table(config, context);
  layers::StackSpec decoder = stack_of(config);
  decoder.first_number = config.encoder_layers;
  decoder.reads_encoder = true;
  decoder.cross = decoder.attention;
  auto encoded = graph::kNone;
  if (context.mode != layers::Mode::kCached) {
    layers::Context side = layers::encoder_of(context);
    layers::StackSpec encoder = stack_of(config);
    encoder.prefix = "encoder.";
    encoder.is_encoder = true;
    encoder.layers = config.encoder_layers;
    add_distances(config, side, encoder);
    const auto tokens = layers::rows_of_stream(side, side.tokens);
    const auto embedded = ops::embedding(graph, tokens, table, context.activations);
    encoded = layers::stack(side, encoder, embedded);
  }
  if (context.mode == layers::Mode::kEncoderPrefill) {
    layers::store_encoder(context, decoder, encoded);
    return {};
  }
  add_distances(config, context, decoder);
  const auto tokens = layers::rows_of_stream(context, context.tokens);
  const auto embedded = ops::embedding(graph, tokens, table, context.activations);
  auto hidden = layers::stack(context, decoder, embedded, encoded);
  if (config.scaled_head)
    hidden = ops::scale(graph, hidden, 1 / std::sqrt(static_cast<double>(config.hidden_size)));
  const auto head = head_table(config, context, table);
  apply_init(config, graph);
  return {hidden, head};
}

}  // namespace strata::models
