// The config.json keys of families that choose experts as DeepSeek-V3 does.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {

// What a config.json that leaves a key out means by it.
struct SigmoidDefaults {
  int64_t count, per_token, intermediate_size, shared, dense_layers;
  int64_t groups = 1, kept_groups = 1;
  double scale = 1;
};
// None if all layers are dense.
Experts read_sigmoid_experts(const ConfigJson& json, const SigmoidDefaults& defaults);
void write_sigmoid_experts(nlohmann::ordered_json& json, const Experts& experts);

// num_nextn_predict_layers, as the same families name it.
void read_prediction(const ConfigJson& json, ModelConfig& config);
void write_prediction(nlohmann::ordered_json& json, const ModelConfig& config);
// As Llama's; layers that predict further tokens where the model is taken without them; and the copies of
// embedding and head stored with such a layer.
bool ignores_prediction(const ModelConfig& config, std::string_view name);

}  // namespace strata::models
