// config.json keys and tensor names of T5 and the families based on it. Internal to their files.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/config_json.h"

namespace strata::models {

// All keys except the activation and positions.
ModelConfig read_t5_keys(const ConfigJson& json, const Family& family);
nlohmann::ordered_json t5_keys(const ModelConfig& config, const char* architecture, DType dtype);
// `ffn`: the files' name of an FFN, or of the mixture of experts instead.
std::vector<TensorRow> t5_tensors(const ModelConfig& config, const std::string& ffn);
bool t5_ignores(const ModelConfig& config, std::string_view name);

}  // namespace strata::models
