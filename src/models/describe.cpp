#include <fmt/core.h>

#include "base/clock.h"
#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {
namespace {

std::string norm_of(const ModelConfig& config) {
  std::string text;
  switch (config.norm) {
    case layers::NormSpec::Kind::kRms:
      text = config.norm_weight_offset == 1 ? "RMSNorm by 1 + w" : "RMSNorm";
      break;
    case layers::NormSpec::Kind::kLayer:
      text = "LayerNorm";
      break;
    case layers::NormSpec::Kind::kPlainLayer:
      text = "LayerNorm without parameters";
      break;
  }
  switch (config.norm_placement) {
    case layers::NormPlacement::kPreNorm:
      return text + " before blocks";
    case layers::NormPlacement::kPostNorm:
      return text + " after blocks";
    case layers::NormPlacement::kSandwich:
      return text + " before and after blocks";
    case layers::NormPlacement::kParallel:
      return text + " before attention and FFN side by side";
    case layers::NormPlacement::kNormOfSum:
      return text + " of sums";
  }
  return text;
}

std::string positions_of(const ModelConfig& config) {
  if (config.positions == Positions::kLearned) return "learned positions";
  if (config.positions == Positions::kAbsent) return "none";
  if (config.positions == Positions::kRelative)
    return fmt::format("bias by distance in {} buckets", config.distance_buckets);
  std::string text = "rotary";
  if (config.latent) text += fmt::format(" on {} of a head of {}", config.rotary_dim(), config.head_dim);
  if (config.partial_rotary_factor < 1)
    text += fmt::format(" on {:g} of a head", config.partial_rotary_factor);
  switch (config.rope.kind) {
    case ops::RopeScaling::Kind::kUnscaled:
      break;
    case ops::RopeScaling::Kind::kInterpolated:
      text += " (linear)";
      break;
    case ops::RopeScaling::Kind::kLlama3:
      text += " (llama3)";
      break;
    case ops::RopeScaling::Kind::kDynamic:
      text += " (dynamic)";
      break;
    case ops::RopeScaling::Kind::kYarn:
      text += " (YaRN)";
      break;
    case ops::RopeScaling::Kind::kLongRope:
      text += " (LongRoPE)";
      break;
  }
  if (config.rotates_in_windows) text += ", none in layers that see all";
  if (config.window_rope)
    text += config.window_rope->theta == config.rope.theta ? ", not scaled in windows"
                                                           : ", another base in windows";
  if (config.unrotated.any(config.layers)) {
    text += config.unrotated.layers.empty()
                ? fmt::format(", none in one of {} layers", config.unrotated.period)
                : ", none in some layers";
  }
  return text;
}

// Mixers besides attention, with the number of layers that have them.
std::string mixers_of(const ModelConfig& config) {
  int64_t delta = 0, spaces = 0, convolutions = 0, parallel = 0;
  for (const layers::LayerKind& kind : config.layer_kinds) {
    delta += kind.mixer == layers::Mixer::kDelta ? 1 : 0;
    spaces += kind.mixer == layers::Mixer::kStateSpace ? 1 : 0;
    convolutions += kind.mixer == layers::Mixer::kShortConvolution ? 1 : 0;
    parallel += kind.mixer == layers::Mixer::kParallel ? 1 : 0;
  }
  std::string text;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0)
      text += fmt::format("{}{} in {} of {} layers", text.empty() ? "" : ", ", what, count, config.layers);
  };
  add(delta, config.delta && config.delta->decays_by_channel ? "Kimi delta attention" : "gated delta nets");
  add(spaces, "Mamba-2");
  add(convolutions, "short convolutions");
  add(parallel, "Mamba-2 parallel to attention");
  return text;
}

std::string attention_of(const ModelConfig& config) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const std::string mixers = mixers_of(config);
  if (!mixers.empty()) add(mixers);
  if (config.attention_gate) add("a gate of the output");
  if (config.architecture == Architecture::kEncoder) add("both ways");
  if (config.architecture == Architecture::kEncoderDecoder)
    add("an encoder both ways, a decoder that reads it");
  if (config.latent)
    add(config.latent->query_rank > 0 ? "latent queries, keys and values" : "latent keys and values");
  if (config.indexer) add(fmt::format("an indexer that chooses {} keys", config.indexer->count));
  if (config.kv_heads < config.heads) add("grouped queries");
  if (config.qkv_bias) add(config.out_bias ? "biases" : "biases of q, k, v");
  if (config.qk_norm == layers::AttentionSpec::QkNorm::kHead) add("norms of q and k by head");
  if (config.qk_norm == layers::AttentionSpec::QkNorm::kProjection) add("norms of q and k");
  if (config.sliding_window.size > 0) {
    int64_t windowed = 0;
    for (int64_t i = 0; i < config.layers; ++i) windowed += config.sliding_window.at(i) ? 1 : 0;
    const std::string what = config.sliding_window.chunked ? "chunks" : "windows";
    add(windowed == config.layers ? what : what + " in some layers");
  }
  if (config.sinks) add("sinks");
  if (config.plain_qk_norm) add("norms of q and k by head, without weights");
  if (config.attention_softcap > 0) add("capped scores");
  if (config.clip_qkv > 0) add("clipped q, k, v");
  return text.empty() ? "plain" : text;
}

std::string ffn_of(const ModelConfig& config) {
  const bool swiglu = config.gated && config.activation == ActivationKind::kSilu;
  std::string text = swiglu ? "SwiGLU" : (config.gated ? "gated " : "") + name_of(config.activation);
  if (config.experts.clamp.limit > 0) text = "clamped SwiGLU";
  if (config.ffn_bias || config.experts.biases) text += ", biases";
  if (config.experts.count == 0) return text;
  text += fmt::format(", {} of {} experts", config.experts.route.k, config.experts.count);
  if (config.experts.shared_size > 0) text += " and a shared one";
  int64_t with = 0;
  for (int64_t i = 0; i < config.layers; ++i) with += config.experts.at(i) ? 1 : 0;
  for (int64_t i = 0; i < config.encoder_layers; ++i) with += config.experts.at_encoder(i) ? 1 : 0;
  if (with < config.blocks()) text += " in some layers";
  return text;
}

std::string tables_of(const ModelConfig& config) {
  std::string text = config.tied ? "tied" : "untied";
  if (config.scaled_embedding) text += ", embedding × √d";
  if (config.logits_softcap > 0) text += ", capped logits";
  if (config.token_types > 0) text += ", token types";
  if (config.head_transform) text += ", a layer before the head";
  if (config.scaled_head) text += ", head × 1/√d";
  if (config.predict_layers == 1) text += ", a further token predicted";
  if (config.predict_layers > 1) text += fmt::format(", {} further tokens predicted", config.predict_layers);
  return text;
}

}  // namespace

Blocks blocks_of(const ModelConfig& config) {
  return {norm_of(config), positions_of(config), attention_of(config), ffn_of(config), tables_of(config)};
}

std::string parameters_in_words(const ModelConfig& config) {
  const auto words = [](int64_t count) { return human_count(static_cast<double>(count)); };
  std::string all = words(parameter_count(config)) + " parameters";
  if (config.experts.count == 0) return all;
  return all + ", " + words(active_parameter_count(config)) + " of them for each token";
}

std::string layers_of(const ModelConfig& config) {
  return config.encoder_layers > 0 ? fmt::format("{} + {}", config.encoder_layers, config.layers)
                                   : std::to_string(config.layers);
}

}  // namespace strata::models
