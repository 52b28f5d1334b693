#include "models/decoder.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "layers/context_parallel.h"
#include "models/parametrization.h"
#include "ops/activation/activation.h"
#include "ops/copy/copy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/predict/predict.h"
#include "ops/relative_bias/relative_bias.h"

namespace strata::models {
namespace {

// √d rounded to the activations' type, as if a table of that type were multiplied.
double embedding_scale(const ModelConfig& config, DType activations) {
  if (!config.scaled_embedding) return config.embedding_multiplier;
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  if (activations == DType::kF16) return static_cast<float>(F16(root));
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
          .softcap = config.attention_softcap,
          .sinks = config.sinks,
          .adjacent_pairs = config.adjacent_rotary_pairs,
          .plain_qk_norm = config.plain_qk_norm,
          .output_gate = config.attention_gate};
}

// For a stack with a given number of layers. The single loss of all layers with experts is their mean.
void set_experts(const ModelConfig& config, layers::StackSpec& spec) {
  spec.moe = config.experts;
  if (!spec.moe.pool_layers) return;
  int64_t count = 0;
  for (int64_t i = 0; i < spec.layers; ++i) count += spec.has_experts(i) ? 1 : 0;
  spec.moe.z_coefficient *= 1.0 / static_cast<double>(std::max<int64_t>(1, count));
}

// Growth of scores under scaled positions, in addition to that of cosines and sines; latent attention only.
double score_growth(const ops::RopeScaling& rope) {
  if (rope.mscale_all_dim == 0 || rope.factor <= 1) return 1;
  const double growth = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
  return growth * growth;
}

// Latent attention in all layers of the stack, rotated as its attention is.
void attend_to_latents(const ModelConfig& config, layers::StackSpec& spec) {
  layers::LatentAttentionSpec attention{
      .hidden_size = config.hidden_size,
      .heads = config.heads,
      .dims = *config.latent,
      .bias = config.out_bias,
      .rope_table = spec.attention.rope_table,
      .adjacent_pairs = config.adjacent_rotary_pairs,
      .scale = score_growth(config.rope) / std::sqrt(static_cast<double>(config.head_dim))};
  attention.indexer = config.indexer;
  spec.other_attention = [&config, attention](layers::Context& context, int64_t layer,
                                              const std::string& name, graph::ValueId x) {
    layers::LatentAttentionSpec named = attention;
    named.name = name;
    named.has_own_indexer = config.has_own_indexer(layer);
    return layers::latent_attention(context, named, x);
  };
}

// Mixers besides attention.
void mix_otherwise(const ModelConfig& config, layers::StackSpec& spec) {
  spec.kinds = config.layer_kinds;
  spec.other_mixer_norms = config.other_mixer_norms;
  spec.other_mixer = [&config](layers::Context& context, layers::Mixer mixer, const std::string& name,
                               graph::ValueId x) -> graph::ValueId {
    const int64_t width = config.hidden_size;
    switch (mixer) {
      case layers::Mixer::kDelta:
        return layers::delta_net(context, {name, width, config.delta.value()}, x);
      case layers::Mixer::kStateSpace:
        return layers::state_space(context, {name, width, config.state_space.value()}, x);
      case layers::Mixer::kShortConvolution:
        return layers::short_convolution(context, {name, width, config.short_convolution.value()}, x);
      case layers::Mixer::kAttention:
      case layers::Mixer::kParallel:
      case layers::Mixer::kAbsent:
        break;
    }
    throw InternalError("{} has no mixer", name);
  };
}

layers::StackSpec stack_of(const ModelConfig& config) {
  layers::StackSpec spec{.layers = config.layers,
                         .norm_placement = config.norm_placement,
                         .residual_multiplier = config.residual_multiplier,
                         .multipliers = config.mixer_multipliers,
                         .norm = {.hidden_size = config.hidden_size,
                                  .eps = config.norm_eps,
                                  .kind = config.norm,
                                  .weight_offset = config.norm_weight_offset},
                         .attention = attention_of(config),
                         .ffn = {.hidden_size = config.hidden_size,
                                 .intermediate_size = config.intermediate_size,
                                 .bias = config.ffn_bias,
                                 .activation = config.activation,
                                 .gated = config.gated,
                                 .gate_multiplier = config.ffn_gate_multiplier,
                                 .out_multiplier = config.ffn_out_multiplier}};
  set_experts(config, spec);
  mix_otherwise(config, spec);
  return spec;
}

// The positions available in a program.
int64_t positions_in(const layers::Context& context) {
  return context.mode == layers::Mode::kCached ? context.rows.cache_capacity : context.rows.length;
}

void rotate(const ModelConfig& config, layers::Context& context, layers::StackSpec& spec) {
  graph::Graph& graph = context.graph;
  spec.attention.rope_table = ops::rope_table(graph, positions_in(context), config.rotary_dim(), config.rope);
  if (config.unrotated.any(config.layers))
    spec.is_unrotated = [&config](int64_t layer) { return config.unrotated.at(layer); };
  if (config.sliding_window.size == 0) return;
  spec.window_attention = spec.attention;
  spec.window_attention.window = config.sliding_window.size;
  spec.window_attention.chunked = config.sliding_window.chunked;
  if (config.sliding_window.chunked && context.mode == layers::Mode::kSequences)
    layers::make_chunks(context, config.sliding_window.size);
  if (config.rotates_in_windows) {
    spec.attention.rope_table = graph::kNone;
    spec.attention.plain_qk_norm = false;
    spec.attention.temper = config.temper;
  }
  if (config.window_rope) {
    spec.window_attention.rope_table = ops::rope_table(graph, positions_in(context), config.rotary_dim(),
                                                       *config.window_rope, "sliding_window_rope_table");
  }
  spec.is_windowed = [&config](int64_t layer) { return config.sliding_window.at(layer); };
}

// Bias of a stack's scores by distance: from a row's farthest earlier key to the row, or to the farthest
// later one.
void add_distances(const ModelConfig& config, layers::Context& context, layers::StackSpec& spec) {
  const int64_t farthest = positions_in(context) - 1;
  const auto table =
      layers::embedding_table(context, spec.prefix + "relative_bias.weight",
                              graph::ParameterRole::kDistanceTable, config.distance_buckets, config.heads);
  spec.attention.distance_bias = graph::add<ops::RelativeBias>(context.graph, {.table = table},
                                                               {.max_distance = config.max_distance,
                                                                .bidirectional = !context.causal,
                                                                .first = -farthest,
                                                                .last = context.causal ? 0 : farthest})
                                     .bias;
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

// BERT's head: its input passes a dense layer, an activation and a separate norm.
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
  return {values, head, layers::vocabulary_bias(context, "head.bias", head)};
}

// Whether the stage predicts further tokens.
bool predicts(const ModelConfig& config, const layers::Context& context, const layers::LayerRange& stage) {
  return stage.has_head && context.settings.predicts && context.mode == layers::Mode::kSequences &&
         config.predict_layers > 0;
}

// Messages from and to stages on other ranks.
graph::ValueId receive(layers::Context& context, layers::LayerRange& stage, const char* what, int64_t width) {
  const auto number = context.graph.value_count();
  stage.received.push_back(layers::received(context, fmt::format("received.{}.{}", number, what), width));
  return stage.received.back();
}

// `is_read`: the stage also reads it, again in backward. Each message has separate memory, to which it is
// then copied.
void send(layers::Context& context, layers::LayerRange& stage, graph::ValueId value, bool is_read = false) {
  const bool is_copied = is_read || context.graph.value(value).passage == graph::Value::Passage::kReceived;
  stage.sent.push_back(is_copied ? ops::copy(context.graph, value) : value);
}

// Whether layers after `border` attend to the keys that a layer before it has chosen.
bool shares_choice(const ModelConfig& config, const layers::Context& context, int64_t border) {
  return config.indexer && context.settings.indexer == layers::Settings::Indexer::kSparse &&
         border < config.layers && !config.has_own_indexer(border);
}

void receive_choice(const ModelConfig& config, layers::Context& context, layers::LayerRange& stage) {
  if (!shares_choice(config, context, stage.first)) return;
  const auto name = fmt::format("received.{}.chosen", context.graph.value_count());
  stage.received.push_back(layers::received_choice(context, name, config.indexer->count));
  context.results.chosen = stage.received.back();
}

// The stage reads it too, so the message is a copy.
void send_choice(const ModelConfig& config, layers::Context& context, layers::LayerRange& stage) {
  if (!shares_choice(config, context, stage.end)) return;
  stage.sent.push_back(ops::copy(context.graph, context.results.chosen));
}

// The whole model, without a pipeline.
std::vector<layers::LayerRange> whole_model(const ModelConfig& config) {
  return {{.first = 0, .end = config.blocks()}};
}

bool has_any(const std::vector<layers::LayerRange>& stages, bool layers::LayerRange::*part) {
  return std::any_of(stages.begin(), stages.end(), [&](const layers::LayerRange& one) { return one.*part; });
}

// Whether a stage has layers within [first, end).
bool has_layers(const std::vector<layers::LayerRange>& stages, int64_t first, int64_t end) {
  return std::any_of(stages.begin(), stages.end(), [&](const layers::LayerRange& one) {
    return std::max(one.first, first) < std::min(one.end, end);
  });
}

// Tokens, positions and types as vectors.
graph::ValueId embedded_tokens(const ModelConfig& config, layers::Context& context,
                               const layers::StackSpec& spec, graph::ValueId table,
                               graph::ValueId tokens = graph::kNone) {
  graph::Graph& graph = context.graph;
  layers::EmbeddingSpec look_up{.scale = embedding_scale(config, context.settings.activations),
                                .padding_id = config.pad_id.value_or(-1),
                                .tokens = tokens};
  if (config.positions == Positions::kLearned) {
    look_up.position_table =
        layers::embedding_table(context, "positions.weight", graph::ParameterRole::kPositionTable,
                                config.max_positions, config.hidden_size);
  }
  auto embedded = layers::embedding(context, table, look_up);
  if (config.token_types > 0) {
    const auto types =
        layers::embedding_table(context, "token_types.weight", graph::ParameterRole::kTypeTable,
                                config.token_types, config.hidden_size);
    embedded = graph::add<ops::AddRow>(graph, {.x = embedded, .table = types}).y;
  }
  if (config.embedding_norm) embedded = layers::norm(context, norm_named(spec, "embedding_norm"), embedded).y;
  return embedded;
}

// The modules after the head's input, with the embedding's table.
std::vector<Hidden::Predicted> predict_further(const ModelConfig& config, layers::Context& context,
                                               const layers::StackSpec& spec, graph::ValueId table,
                                               graph::ValueId hidden) {
  graph::Graph& graph = context.graph;
  const int64_t length = context.rows.length, width = config.hidden_size;
  const graph::ValueId targets =
      layers::whole_sequences(context, context.inputs.batch[Column::kTargets], length);
  graph::ValueId ahead = targets;
  std::vector<Hidden::Predicted> predicted;
  for (int64_t layer = config.layers; layer < config.layers + config.predict_layers; ++layer) {
    const std::string name = fmt::format("layers.{}.predict.", layer);
    const auto norm = [&](const char* part, graph::ValueId x) {
      return layers::norm(context, norm_named(spec, (name + part).c_str()), x).y;
    };
    const auto next = graph::add<ops::TargetsAhead>(graph, {.targets = targets, .ahead = ahead}, {length});
    ahead = next.ahead;
    graph.set_layer(static_cast<int32_t>(layer));
    const auto tokens = layers::held_of_sequences(context, next.tokens, length);
    const auto embedded = norm("embedding_norm", embedded_tokens(config, context, spec, table, tokens));
    const auto joined = ops::side_by_side(graph, embedded, norm("hidden_norm", hidden));
    // A matrix between hidden values, like an FFN's first one.
    const auto in = layers::linear(context,
                                   {.name = name + "in",
                                    .role = graph::ParameterRole::kFfnIn,
                                    .inputs = 2 * width,
                                    .outputs = width,
                                    .parallel = layers::LinearSpec::Parallel::kReplicated},
                                   joined);
    const layers::Stream stream = layers::blocks(context, spec, layer, layer + 1, {in});
    layers::NormSpec last = norm_named(spec, (name + "final_norm").c_str());
    last.is_final = true;
    hidden = layers::norm(context, last, stream.update, stream.rest).y;
    predicted.push_back({hidden, layers::held_of_sequences(context, ahead, length)});
  }
  return predicted;
}

}  // namespace

Hidden build_stack(const ModelConfig& config, layers::Context& context) {
  graph::Graph& graph = context.graph;
  std::vector<layers::LayerRange> whole = whole_model(config);
  std::vector<layers::LayerRange>& stages = context.stages != nullptr ? *context.stages : whole;
  if (config.architecture == Architecture::kEncoder) layers::make_bidirectional(context);
  const bool has_modules = std::any_of(stages.begin(), stages.end(), [&](const layers::LayerRange& stage) {
    return predicts(config, context, stage);
  });
  const bool needs_table = has_any(stages, &layers::LayerRange::has_embedding) || has_modules ||
                           (config.tied && has_any(stages, &layers::LayerRange::has_head));
  const auto table = needs_table ? token_table(config, context) : graph::kNone;
  layers::StackSpec spec = stack_of(config);
  if (config.positions == Positions::kRotary && (has_layers(stages, 0, config.layers) || has_modules))
    rotate(config, context, spec);
  if (config.latent) attend_to_latents(config, spec);
  layers::Stream stream;
  Hidden out;
  for (size_t i = 0; i < stages.size(); ++i) {
    layers::LayerRange& stage = stages[i];
    graph.set_chunk(static_cast<int32_t>(i));
    if (stage.has_embedding) stream = {embedded_tokens(config, context, spec, table)};
    if (stage.receives) {
      stream = {receive(context, stage, "stream", config.hidden_size)};
      receive_choice(config, context, stage);
    }
    stream = layers::blocks(context, spec, stage.first, stage.end, stream);
    if (stage.has_head) {
      layers::end_of_experts(context, spec.moe);
      auto hidden = layers::end_of_stack(context, spec, stream);
      if (config.logits_divisor != 1) hidden = ops::scale(graph, hidden, 1 / config.logits_divisor);
      const auto head = head_table(config, context, table);
      out = config.head_transform ? transformed(config, context, spec, hidden, head)
                                  : Hidden{hidden, head, graph::kNone, config.logits_softcap};
      if (predicts(config, context, stage)) {
        out.predicted = predict_further(config, context, spec, table, hidden);
        out.predict_weight = config.predict_weight;
      }
    }
    if (!stage.sends) continue;
    send(context, stage, layers::joined(context, stream));
    send_choice(config, context, stage);
  }
  apply_init(config, graph);
  return out;
}

namespace {

// Builds an encoder-decoder stage by stage.
class EncoderDecoder {
 public:
  EncoderDecoder(const ModelConfig& config, layers::Context& context, std::vector<layers::LayerRange>& stages)
      : config_(config), context_(context), stages_(stages), decoder_(stack_of(config)), encoder_(decoder_) {
    decoder_.first_number = config.encoder_layers;
    decoder_.reads_encoder = true;
    decoder_.cross = decoder_.attention;
    encoder_.prefix = "encoder.";
    encoder_.is_encoder = true;
    encoder_.layers = config.encoder_layers;
    set_experts(config, encoder_);
  }

  Hidden build() {
    const bool encodes = context_.mode != layers::Mode::kCached;
    const bool decodes = context_.mode != layers::Mode::kEncoderPrefill;
    std::optional<layers::Context> side;
    if (encodes) side.emplace(layers::encoder_of(context_));
    const bool needs_table = has_any(stages_, &layers::LayerRange::has_embedding) ||
                             has_layers(stages_, border(), border() + 1) ||
                             (config_.tied && has_any(stages_, &layers::LayerRange::has_head));
    if (needs_table) table_ = token_table(config_, context_);
    if (encodes && has_layers(stages_, 0, border())) add_distances(config_, *side, encoder_);
    bool has_distances = false;  // of the decoder
    Hidden out;
    for (size_t i = 0; i < stages_.size(); ++i) {
      layers::LayerRange& stage = stages_[i];
      context_.graph.set_chunk(static_cast<int32_t>(i));
      if (encodes) encode(*side, stage);
      if (!decodes) continue;
      if (std::max(stage.first, border()) < stage.end && !std::exchange(has_distances, true))
        add_distances(config_, context_, decoder_);
      decode(stage, encodes);
      if (stage.sends) send_on(*side, stage);
      if (stage.has_head) out = head_of();
    }
    if (side)
      context_.results.losses.insert(context_.results.losses.end(), side->results.losses.begin(),
                                     side->results.losses.end());
    if (!decodes) {
      layers::store_encoder(context_, decoder_, encoded_);
      return {};
    }
    apply_init(config_, context_.graph);
    return out;
  }

 private:
  int64_t border() const { return config_.encoder_layers; }

  graph::ValueId embed(layers::Context& context) { return layers::embedding(context, table_); }

  void encode(layers::Context& side, layers::LayerRange& stage) {
    if (stage.has_embedding) stream_ = {embed(side)};
    if (stage.first >= border()) {
      // A stage with only the head reads no encoder.
      if (stage.receives && stage.first < config_.blocks())
        encoded_ = receive(side, stage, "encoded", config_.hidden_size);
      return;
    }
    if (stage.receives) stream_ = {receive(side, stage, "stream", config_.hidden_size)};
    const int64_t end = std::min(stage.end, border());
    stream_ = layers::blocks(side, encoder_, stage.first, end, stream_);
    if (end == border()) {
      layers::end_of_experts(side, encoder_.moe);
      encoded_ = layers::end_of_stack(side, encoder_, stream_);
    }
  }

  void decode(layers::LayerRange& stage, bool encodes) {
    if (stage.end <= border()) return;
    const int64_t first = std::max(stage.first, border());
    if (first == border()) {
      stream_ = {embed(context_)};
    } else if (stage.receives && encodes) {
      stream_ = {receive(context_, stage, "stream", config_.hidden_size)};
    }
    stream_ = layers::blocks(context_, decoder_, first - border(), stage.end - border(), stream_, encoded_);
  }

  // See parallel::boundary_after.
  void send_on(layers::Context& side, layers::LayerRange& stage) {
    const bool is_last = stage.end == config_.blocks();
    if (stage.end >= border() && !is_last) send(context_, stage, encoded_, true);
    if (stage.end < border()) send(side, stage, layers::joined(side, stream_));
    if (stage.end > border()) send(context_, stage, layers::joined(context_, stream_));
  }

  Hidden head_of() {
    layers::end_of_experts(context_, decoder_.moe);
    auto hidden = layers::end_of_stack(context_, decoder_, stream_);
    if (config_.scaled_head)
      hidden = ops::scale(context_.graph, hidden, 1 / std::sqrt(static_cast<double>(config_.hidden_size)));
    return {hidden, head_table(config_, context_, table_)};
  }

  const ModelConfig& config_;
  layers::Context& context_;
  std::vector<layers::LayerRange>& stages_;
  layers::StackSpec decoder_, encoder_;
  graph::ValueId table_ = graph::kNone, encoded_ = graph::kNone;
  layers::Stream stream_;
};

}  // namespace

Hidden build_encoder_decoder(const ModelConfig& config, layers::Context& context) {
  std::vector<layers::LayerRange> whole = whole_model(config);
  return EncoderDecoder(config, context, context.stages != nullptr ? *context.stages : whole).build();
}

}  // namespace strata::models
