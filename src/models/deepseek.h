// config.json keys and tensor names of DeepSeek's latent attention, which several families use.
#pragma once

#include "models/llama_layout.h"

namespace strata::models {

// read_llama_keys(), and the sizes of latents; q_lora_rank = null: queries have none.
ModelConfig read_latent_keys(const ConfigJson& json, const Family& family, const LlamaDefaults& defaults);
// Writes these.
nlohmann::ordered_json latent_keys(const ModelConfig& config, const char* architecture, DType dtype);
// With experts as DeepSeek names them.
std::vector<TensorRow> latent_tensors(const ModelConfig& config);

}  // namespace strata::models
