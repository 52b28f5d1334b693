// Mistral: Llama with a window in every layer.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kMistral, {.max_positions = 131072});
  // Absent means 4096, null none.
  config.sliding_window.size = static_cast<int64_t>(json.real_or_none("sliding_window", 4096));
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "MistralForCausalLM", dtype);
  json["sliding_window"] =
      config.sliding_window.size > 0 ? nlohmann::ordered_json(config.sliding_window.size) : nullptr;
  return json.dump(2) + "\n";
}

}  // namespace

const Family kMistral{"mistral", "mistral", build_stack, read, write, llama_tensors, llama_ignores, "model."};

}  // namespace strata::models
