#include "models/parametrization.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "models/decoder.h"

namespace strata::models {
namespace {

using graph::Init;
using graph::Parameter;
using graph::ParameterRole;

// The multiplier of scores, stored in the rows or the norm of q.
double query_scale(const ModelConfig& config) {
  if (config.mup.base_head_dim == 0) return 1;
  return std::sqrt(static_cast<double>(config.mup.base_head_dim) / static_cast<double>(config.head_dim));
}

bool is_bias(ParameterRole role) {
  return role == ParameterRole::kBias || role == ParameterRole::kAttentionInBias ||
         role == ParameterRole::kFinalNormBias;
}

// The factor on the embedding if the graph multiplies it by √d.
double embedding_scale_of(const ModelConfig& config) {
  return config.scaled_embedding ? 1 / std::sqrt(width_mult(config)) : 1;
}

// µP's factors for one parameter: on its initialization and learning rate, and on both per segment.
struct WidthScale {
  double start = 1, rate = 1;
  std::vector<double> parts = {};
};

WidthScale width_scale(const ModelConfig& config, ParameterRole role) {
  const double m = width_mult(config), q = query_scale(config);
  const auto both = [](double factor) { return WidthScale{factor, factor}; };
  WidthScale hidden{1 / std::sqrt(m), 1 / m};
  const auto with_queries = [&](WidthScale scale) {
    if (q != 1 && config.qk_norm == layers::AttentionSpec::QkNorm::kAbsent) scale.parts = {q, 1, 1};
    return scale;
  };
  switch (role) {
    case ParameterRole::kEmbedding:
      return both(embedding_scale_of(config));
    case ParameterRole::kHead:
    case ParameterRole::kRouter:  // the number of logits does not depend on width
      return both(1 / m);
    case ParameterRole::kFinalNorm:
    case ParameterRole::kFinalNormBias:
      return config.tied ? both(1 / (m * embedding_scale_of(config))) : WidthScale{};
    case ParameterRole::kAttentionIn:
      return with_queries(hidden);
    case ParameterRole::kAttentionInBias:
      return with_queries({});
    case ParameterRole::kQueryNorm:
      return both(q);
    case ParameterRole::kFfnIn:
    case ParameterRole::kAttentionOut:
    case ParameterRole::kFfnOut:
    case ParameterRole::kExpertIn:
    case ParameterRole::kExpertOut:
      return hidden;
    case ParameterRole::kPositionTable:
    case ParameterRole::kNorm:
    case ParameterRole::kKeyNorm:
    case ParameterRole::kBias:
    case ParameterRole::kRouterBias:  // updated from loads, added to scores of constant size
    // Families with these roles do not support µP (mup_errors).
    case ParameterRole::kCrossQuery:
    case ParameterRole::kCrossKeyValue:
    case ParameterRole::kLatentIn:
    case ParameterRole::kLatentUp:
    case ParameterRole::kIndexer:
    case ParameterRole::kTypeTable:
    case ParameterRole::kDistanceTable:
    case ParameterRole::kHeadTransform:
    case ParameterRole::kExpertBias:
    case ParameterRole::kDecayIn:
    case ParameterRole::kConvolution:
    case ParameterRole::kDecayRate:
    case ParameterRole::kStepBias:
    case ParameterRole::kSkip:
      return {};
  }
  throw InternalError("no width scale for the role {}", static_cast<int>(role));
}

// T5's standard deviations, in units of initializer_factor.
double t5_std(const ModelConfig& config, ParameterRole role) {
  const auto width = static_cast<double>(config.hidden_size), head_dim = static_cast<double>(config.head_dim);
  switch (role) {
    case ParameterRole::kEmbedding:
    case ParameterRole::kRouter:
      return 1;
    case ParameterRole::kCrossQuery:
      return 1 / std::sqrt(width * head_dim);
    case ParameterRole::kAttentionOut:
      return 1 / std::sqrt(static_cast<double>(config.q_width()));
    case ParameterRole::kFfnOut:
      return 1 / std::sqrt(static_cast<double>(config.intermediate_size));
    default:
      return 1 / std::sqrt(width);
  }
}

// The scheme's standard deviation of a matrix, at the base width.
double scheme_std(const ModelConfig& config, const Parameter& parameter) {
  const double m = width_mult(config);
  const ParameterRole role = parameter.role;
  const int64_t inner =
      role == ParameterRole::kExpertOut ? config.experts.intermediate_size : config.intermediate_size;
  const double width = static_cast<double>(config.hidden_size) / m, ffn = static_cast<double>(inner) / m;
  const auto layers = static_cast<double>(config.layers);
  const bool of_attention = role == ParameterRole::kAttentionOut;
  const bool into_stream =
      of_attention || role == ParameterRole::kFfnOut || role == ParameterRole::kExpertOut;
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
      return 1 / std::sqrt(2 * (of_attention ? width : ffn) * (parameter.layer + 1));
    case InitScheme::kT5:
      return config.init_std * t5_std(config, role);
  }
  return config.init_std;
}

bool is_truncated(InitScheme scheme) {
  return scheme == InitScheme::kTruncatedNormal || scheme == InitScheme::kMitchell;
}

// A family's deviation for a matrix, whatever the scheme; 0: the scheme's.
double own_std(const ModelConfig& config, const Parameter& parameter) {
  if (!config.state_space) return 0;
  if (parameter.role == ParameterRole::kConvolution) return config.state_space->convolution_std;
  const bool of_state_space =
      parameter.layer >= 0 && config.kind(parameter.layer).mixer == layers::Mixer::kStateSpace;
  return parameter.role == ParameterRole::kAttentionOut && of_state_space ? config.state_space->out_std : 0;
}

Init start_of(const ModelConfig& config, const Parameter& parameter) {
  const Init& built = parameter.init;
  if (const double std = own_std(config, parameter); std > 0)
    return {.kind = Init::Kind::kNormal, .std = std};
  WidthScale scale = width_scale(config, parameter.role);
  // T5 does not scale scores: its queries are initialized smaller instead.
  if (config.init == InitScheme::kT5 && parameter.role == ParameterRole::kAttentionIn)
    scale.parts = {1 / std::sqrt(static_cast<double>(config.head_dim)), 1, 1};
  if (built.kind == Init::Kind::kNormal) {
    return {.kind = is_truncated(config.init) ? Init::Kind::kTruncatedNormal : Init::Kind::kNormal,
            .std = scheme_std(config, parameter) * scale.start,
            .part_scales = scale.parts};
  }
  if (scale.start == 1 || is_bias(parameter.role)) return built;
  // A norm's weight, used as weight + offset.
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
  for (graph::Parameter& parameter : graph.parameters()) {
    parameter.init = start_of(config, parameter);
    std::vector<double>& scales = parameter.init.part_scales;
    if (parameter.part.of.empty() || scales.empty()) continue;
    const auto first = scales.begin() + static_cast<std::ptrdiff_t>(parameter.part.first_segment);
    scales = {first, first + std::ssize(graph.value(parameter.value).segments)};
  }
}

bool is_matrix(ParameterRole role) {
  switch (role) {
    case ParameterRole::kEmbedding:
    case ParameterRole::kPositionTable:
    case ParameterRole::kTypeTable:
    case ParameterRole::kDistanceTable:
    case ParameterRole::kHead:
    case ParameterRole::kHeadTransform:
    case ParameterRole::kAttentionIn:
    case ParameterRole::kCrossQuery:
    case ParameterRole::kCrossKeyValue:
    case ParameterRole::kLatentIn:
    case ParameterRole::kLatentUp:
    case ParameterRole::kIndexer:
    case ParameterRole::kAttentionOut:
    case ParameterRole::kFfnIn:
    case ParameterRole::kFfnOut:
    case ParameterRole::kRouter:
    case ParameterRole::kExpertIn:
    case ParameterRole::kExpertOut:
    case ParameterRole::kDecayIn:
    case ParameterRole::kConvolution:
      return true;
    case ParameterRole::kAttentionInBias:
    case ParameterRole::kNorm:
    case ParameterRole::kQueryNorm:
    case ParameterRole::kKeyNorm:
    case ParameterRole::kFinalNorm:
    case ParameterRole::kFinalNormBias:
    case ParameterRole::kBias:
    case ParameterRole::kRouterBias:
    case ParameterRole::kExpertBias:
    case ParameterRole::kDecayRate:
    case ParameterRole::kStepBias:
    case ParameterRole::kSkip:
      return false;
  }
  throw InternalError("neither a matrix nor a vector: role {}", static_cast<int>(role));
}

bool may_be_low(ParameterRole role) {
  return is_matrix(role) && role != ParameterRole::kRouter && role != ParameterRole::kDistanceTable &&
         role != ParameterRole::kDecayIn && role != ParameterRole::kConvolution &&
         role != ParameterRole::kIndexer;
}

bool is_table(ParameterRole role) {
  return role == ParameterRole::kEmbedding || role == ParameterRole::kPositionTable ||
         role == ParameterRole::kTypeTable || role == ParameterRole::kDistanceTable;
}

RateScale rate_scale(const ModelConfig& config, ParameterRole role) {
  WidthScale scale = width_scale(config, role);
  return {scale.rate, std::move(scale.parts)};
}

bool is_hidden_matrix(ParameterRole role) {
  switch (role) {
    case ParameterRole::kAttentionIn:
    case ParameterRole::kCrossQuery:
    case ParameterRole::kCrossKeyValue:
    case ParameterRole::kLatentIn:
    case ParameterRole::kLatentUp:
    case ParameterRole::kIndexer:
    case ParameterRole::kAttentionOut:
    case ParameterRole::kFfnIn:
    case ParameterRole::kFfnOut:
    case ParameterRole::kExpertIn:
    case ParameterRole::kExpertOut:
    case ParameterRole::kDecayIn:
      return true;
    default:
      return false;
  }
}

bool takes_recipe(ParameterRole role) {
  return is_hidden_matrix(role) && role != ParameterRole::kDecayIn && role != ParameterRole::kIndexer;
}

std::vector<std::string> mup_errors(const ModelConfig& config) {
  std::vector<std::string> errors;
  if (config.mup.base_hidden_size == 0) return errors;
  if (config.architecture != Architecture::kDecoder || config.latent || config.has_states()) {
    errors.push_back(fmt::format(
        "{} does not support µP: expected a decoder whose layers all have attention, and not to latents",
        config.family->name));
    return errors;
  }
  if (config.tied && config.norm == layers::NormSpec::Kind::kPlainLayer && width_mult(config) != 1) {
    errors.emplace_back(
        "µP stores the multiplier of a tied head in the last norm's weight, which this family does not have. "
        "Set tie_word_embeddings = false");
  }
  if (query_scale(config) == 1) return errors;
  if (config.clip_qkv > 0) {
    errors.push_back(fmt::format(
        "the head size is {} and its base {}: µP's multiplier would be in the rows of q, which clip_qkv "
        "clips. Use the base head size, or set clip_qkv to null",
        config.head_dim, config.mup.base_head_dim));
  }
  if (config.attention_scalar > 0 && config.attention_scalar != static_cast<double>(config.head_dim)) {
    errors.push_back(fmt::format(
        "the head size is {} and its base {}, but query_pre_attn_scalar is {}: expected the head size. "
        "Set it, or use the base head size",
        config.head_dim, config.mup.base_head_dim, config.attention_scalar));
  }
  return errors;
}

}  // namespace strata::models
