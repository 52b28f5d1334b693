// What T5 and the families that are made of it share: keys of config.json, names of tensors. Internal to
// their files.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/config_json.h"

namespace strata::models {

// All keys except the activation and positions.
ModelConfig read_t5_keys(const ConfigJson& json, const Family& family);
nlohmann::ordered_json t5_keys(const ModelConfig& config, const char* architecture, DType dtype);
// `ffn`: what files call an FFN, or the mixture in its place.
std::vector<TensorRow> t5_tensors(const ModelConfig& config, const std::string& ffn);
bool t5_ignores(const ModelConfig& config, std::string_view name);

}  // namespace strata::models
