#include "models/parametrization.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "models/decoder.h"

namespace strata::models {
namespace {

using graph::Init;

// What a parameter is for, from its name.
enum class Part {
  kEmbedding,
  kPositions,
  kHead,
  kQkv,
  kCrossQuery,
  kUp,
  kOut,  // of cross-attention too
  kDown,
  kQueryNorm,
  kLastNorm,
  kOther,
};

Part part_of(std::string_view name) {
  if (name == "embedding.weight") return Part::kEmbedding;
  if (name == "positions.weight") return Part::kPositions;
  if (name == "head.weight") return Part::kHead;
  if (name.starts_with("final_norm.")) return Part::kLastNorm;
  if (name.ends_with("attention.qkv.weight") || name.ends_with("attention.qkv.bias")) return Part::kQkv;
  if (name.ends_with("attention.q_norm.weight")) return Part::kQueryNorm;
  if (name.ends_with("cross.q.weight")) return Part::kCrossQuery;
  if (name.ends_with("attention.out.weight") || name.ends_with("cross.out.weight")) return Part::kOut;
  if (name.ends_with("ffn.up.weight")) return Part::kUp;
  if (name.ends_with("ffn.down.weight")) return Part::kDown;
  return Part::kOther;
}

bool is_bias(std::string_view name) {
  return name.ends_with(".bias");
}

double layer_of(std::string_view name) {
  int layer = 0;
  constexpr std::string_view kBefore = "layers.";
  name.remove_prefix(name.find(kBefore) + kBefore.size());
  std::from_chars(name.data(), name.data() + name.size(), layer);
  return layer;
}

// The multiplier of scores that the rows of q or the norm of q hold.
double query_scale(const ModelConfig& config) {
  if (config.mup.base_head_dim == 0) return 1;
  return std::sqrt(static_cast<double>(config.mup.base_head_dim) / static_cast<double>(config.head_dim));
}

// Of the embedding, where the graph multiplies it by √d.
double embedding_scale_of(const ModelConfig& config) {
  return config.scaled_embedding ? 1 / std::sqrt(width_mult(config)) : 1;
}

// What µP does to one parameter: factors on where it starts and on its learning rate, and on both for its
// segments.
struct WidthScale {
  double start = 1, rate = 1;
  std::vector<double> parts = {};
};

WidthScale width_scale(const ModelConfig& config, std::string_view name) {
  const double m = width_mult(config), q = query_scale(config);
  const auto both = [](double factor) { return WidthScale{factor, factor}; };
  WidthScale hidden{1 / std::sqrt(m), 1 / m};
  switch (part_of(name)) {
    case Part::kEmbedding:
      return both(embedding_scale_of(config));
    case Part::kHead:
      return both(1 / m);
    case Part::kLastNorm:
      return config.tied ? both(1 / (m * embedding_scale_of(config))) : WidthScale{};
    case Part::kQkv: {
      WidthScale scale = is_bias(name) ? WidthScale{} : hidden;
      if (q != 1 && config.qk_norm == layers::AttentionSpec::QkNorm::kAbsent) scale.parts = {q, 1, 1};
      return scale;
    }
    case Part::kQueryNorm:
      return both(q);
    case Part::kUp:
    case Part::kOut:
    case Part::kDown:
      return hidden;
    case Part::kCrossQuery:
    case Part::kPositions:
    case Part::kOther:
      break;
  }
  return {};
}

// T5's standard deviations, in units of initializer_factor.
double t5_std(const ModelConfig& config, Part part) {
  const auto width = static_cast<double>(config.hidden_size), head_dim = static_cast<double>(config.head_dim);
  switch (part) {
    case Part::kEmbedding:
      return 1;
    case Part::kCrossQuery:
      return 1 / std::sqrt(width * head_dim);
    case Part::kOut:
      return 1 / std::sqrt(static_cast<double>(config.q_width()));
    case Part::kDown:
      return 1 / std::sqrt(static_cast<double>(config.intermediate_size));
    default:
      return 1 / std::sqrt(width);
  }
}

// The scheme's standard deviation of a matrix, at the base width.
double scheme_std(const ModelConfig& config, std::string_view name) {
  const double m = width_mult(config);
  const double width = static_cast<double>(config.hidden_size) / m,
               ffn = static_cast<double>(config.intermediate_size) / m;
  const auto layers = static_cast<double>(config.layers);
  const Part part = part_of(name);
  const bool into_stream = part == Part::kOut || part == Part::kDown;
  switch (config.init) {
    case InitScheme::kPlain:
    case InitScheme::kTruncatedNormal:
      break;
    case InitScheme::kScaledResidual:
      return into_stream ? config.init_std / std::sqrt(2 * layers) : config.init_std;
    case InitScheme::kSmallWang:
      return into_stream ? 2 / (layers * std::sqrt(width)) : std::sqrt(2 / (5 * width));
    case InitScheme::kMitchell:
      if (!into_stream) return 1 / std::sqrt(width);
      return 1 / std::sqrt(2 * (part == Part::kOut ? width : ffn) * (layer_of(name) + 1));
    case InitScheme::kT5:
      return config.init_std * t5_std(config, part);
  }
  return config.init_std;
}

bool is_truncated(InitScheme scheme) {
  return scheme == InitScheme::kTruncatedNormal || scheme == InitScheme::kMitchell;
}

// The start of a parameter that the graph was built to start as `built`.
Init start_of(const ModelConfig& config, std::string_view name, const Init& built) {
  WidthScale scale = width_scale(config, name);
  // The scores of T5 are not scaled: its queries start that much smaller.
  if (config.init == InitScheme::kT5 && part_of(name) == Part::kQkv)
    scale.parts = {1 / std::sqrt(static_cast<double>(config.head_dim)), 1, 1};
  if (built.kind == Init::Kind::kNormal) {
    return {.kind = is_truncated(config.init) ? Init::Kind::kTruncatedNormal : Init::Kind::kNormal,
            .std = scheme_std(config, name) * scale.start,
            .part_scales = scale.parts};
  }
  if (scale.start == 1 || is_bias(name)) return built;
  // A norm's weight, which counts as weight + offset.
  return {.kind = Init::Kind::kConstant, .value = scale.start - config.norm_weight_offset};
}

}  // namespace

std::string_view name_of(InitScheme scheme) {
  switch (scheme) {
    case InitScheme::kPlain:
      return "normal";
    case InitScheme::kScaledResidual:
      return "scaled_residual";
    case InitScheme::kSmallWang:
      return "small_wang";
    case InitScheme::kTruncatedNormal:
      return "truncated_normal";
    case InitScheme::kMitchell:
      return "mitchell";
    case InitScheme::kT5:
      return "t5";
  }
  return "normal";
}

double width_mult(const ModelConfig& config) {
  if (config.mup.base_hidden_size == 0) return 1;
  return static_cast<double>(config.hidden_size) / static_cast<double>(config.mup.base_hidden_size);
}

void apply_init(const ModelConfig& config, graph::Graph& graph) {
  for (graph::Parameter& parameter : graph.parameters())
    parameter.init = start_of(config, graph.value(parameter.value).name, parameter.init);
}

RateScale rate_scale(const ModelConfig& config, std::string_view parameter) {
  WidthScale scale = width_scale(config, parameter);
  return {scale.rate, std::move(scale.parts)};
}

bool is_hidden_matrix(std::string_view parameter) {
  if (is_bias(parameter)) return false;
  switch (part_of(parameter)) {
    case Part::kQkv:
    case Part::kCrossQuery:
    case Part::kUp:
    case Part::kOut:
    case Part::kDown:
      return true;
    default:
      return parameter.ends_with("cross.kv.weight");
  }
}

std::vector<std::string> mup_faults(const ModelConfig& config) {
  std::vector<std::string> faults;
  if (config.mup.base_hidden_size == 0) return faults;
  if (config.architecture != Architecture::kDecoder) {
    faults.push_back(fmt::format("µP is not there for {}; leave it out", config.family->name));
    return faults;
  }
  if (config.tied && config.norm == layers::NormSpec::Kind::kPlainLayer && width_mult(config) != 1) {
    faults.emplace_back(
        "a tied head needs the weight of the last norm to hold µP's multiplier, and this family's norms have "
        "none; set tie_word_embeddings = false");
  }
  if (query_scale(config) == 1) return faults;
  if (config.clip_qkv > 0) {
    faults.push_back(
        fmt::format("with a head size of {} for a base of {} a multiplier would lie in the rows of q, which "
                    "clip_qkv cuts; keep the head size at the base's, or set clip_qkv to null",
                    config.head_dim, config.mup.base_head_dim));
  }
  if (config.attention_scalar > 0 && config.attention_scalar != static_cast<double>(config.head_dim)) {
    faults.push_back(
        fmt::format("with a head size of {} for a base of {} scores must be scaled by the head size, and "
                    "query_pre_attn_scalar is {}; set it to the head size, or keep that at the base's",
                    config.head_dim, config.mup.base_head_dim, config.attention_scalar));
  }
  return faults;
}

}  // namespace strata::models
