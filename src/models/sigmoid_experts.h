// config.json keys of families that select experts like DeepSeek-V3.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {

// The values of keys that a config.json omits.
struct SigmoidDefaults {
  int64_t count, per_token, intermediate_size, shared, dense_layers;
  int64_t groups = 1, kept_groups = 1;
  double scale = 1;
  int64_t first =
      -1;  // of the layers with experts, as another key has it; -1: as first_k_dense_replace has it
};
// None if all layers are dense.
Experts read_sigmoid_experts(const ConfigJson& json, const SigmoidDefaults& defaults);
void write_sigmoid_experts(nlohmann::ordered_json& json, const Experts& experts);

// num_nextn_predict_layers, the key of the same families.
void read_prediction(const ConfigJson& json, ModelConfig& config);
void write_prediction(nlohmann::ordered_json& json, const ModelConfig& config);
// Whether a tensor is ignored: Llama's ignored tensors, the layers that predict further tokens if the model
// is read without them, and the copies of embedding and head stored with such a layer.
bool ignores_prediction(const ModelConfig& config, std::string_view name);

}  // namespace strata::models
