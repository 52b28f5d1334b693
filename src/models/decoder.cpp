#include "models/decoder.h"

#include <cmath>

#include "models/parametrization.h"

namespace strata::models {
namespace {

// √d in the type of the activations, as a table of that type would be multiplied by.
double embedding_scale(const ModelConfig& config, DType activations) {
  if (!config.scaled_embedding) return 1;
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(config.width)));
  return activations == DType::kBF16 ? static_cast<float>(BF16(root)) : root;
}

layers::AttentionSpec attention_of(const ModelConfig& config) {
  return {.width = config.width,
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

}  // namespace

Hidden build_decoder(const ModelConfig& config, layers::Context& context) {
  graph::Graph& graph = context.graph;
  const auto table =
      layers::embedding_table(context, "embedding.weight", config.vocab_size, config.width, config.init_std);
  ops::EmbeddingOptions look_up{.scale = embedding_scale(config, context.activations)};
  layers::DecoderSpec spec{.layers = config.layers,
                           .wiring = config.wiring,
                           .norm = {.width = config.width,
                                    .eps = config.norm_eps,
                                    .kind = config.norm,
                                    .weight_offset = config.norm_weight_offset},
                           .attention = attention_of(config),
                           .ffn = {.width = config.width,
                                   .hidden = config.ffn,
                                   .bias = config.ffn_bias,
                                   .activation = config.activation,
                                   .gated = config.gated}};
  const int64_t positions =
      context.mode == layers::Mode::kCached ? context.cache_room : context.sequence_length;
  if (config.learned_positions) {
    look_up.positions = context.positions;
    look_up.position_table = layers::embedding_table(context, "positions.weight", config.max_positions,
                                                     config.width, config.init_std);
  } else {
    look_up.padding_id = config.pad_id.value_or(-1);
    spec.attention.rope_table = ops::rope_table(graph, positions, config.rotary_dim(), config.rope);
  }
  if (config.windows.size > 0) {
    spec.window_attention = spec.attention;
    spec.window_attention.window = config.windows.size;
    if (config.window_rope) {
      spec.window_attention.rope_table = ops::rope_table(graph, positions, config.rotary_dim(),
                                                         *config.window_rope, "rope_table_of_windows");
    }
    spec.is_windowed = [&](int64_t layer) { return config.windows.at(layer); };
  }
  const auto embedded = ops::embedding(graph, context.tokens, table, context.activations, look_up);
  const auto hidden = layers::decoder(context, spec, embedded);
  const auto head = config.tied ? table
                                : layers::embedding_table(context, "head.weight", config.vocab_size,
                                                          config.width, config.init_std);
  set_starts(config, graph);
  return {hidden, head, config.logits_softcap};
}

}  // namespace strata::models
