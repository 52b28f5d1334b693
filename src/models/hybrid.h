// Hybrids: models in which some layers have another mixer than attention (layers/mixers.h). What their families share.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {

// A value of layer_types, or a letter of a pattern.
struct KindName {
  std::string_view name;
  layers::LayerKind kind;
};
inline constexpr KindName kLinearNames[] = {{"linear_attention", {layers::Mixer::kDelta}},
                                            {"full_attention", {layers::Mixer::kAttention}}};
// From layer_types; where absent, every `period`-th layer has attention and the others `other`.
std::vector<layers::LayerKind> read_kinds(const ConfigJson& json, int64_t layers,
                                          std::span<const KindName> names, int64_t period,
                                          layers::Mixer other);
nlohmann::ordered_json kinds_json(const ModelConfig& config, std::span<const KindName> names);

// Errors in the sizes of mixers, one sentence each.
void add_mixer_errors(const ModelConfig& config, std::vector<std::string>& errors);

// Floating-point operations of the recurrences of all layers, of a token, forward; matrices and convolutions are not
// included. By chunks of 64 tokens, as the kernels compute them.
double recurrence_flops_per_token(const ModelConfig& config);
// Of one layer.
double recurrence_flops_per_token(const ModelConfig& config, layers::Mixer mixer);

}  // namespace strata::models
