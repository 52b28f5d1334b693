// Mistral: Llama with a window in every layer.

#include "base/json.h"
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
  return dump_json(json, 2) + "\n";
}

constexpr PresetRow kPresets[] = {
    {"mistral-7b", "Mistral 7B v0.1, windows of 4096", 4096, 32, 32, 8, 128, 14336, 32000, 32768,
     R"("rms_norm_eps":1e-5,"sliding_window":4096)"},
    {"mistral-7b-v0.3", "Mistral 7B v0.3", 4096, 32, 32, 8, 128, 14336, 32768, 32768,
     R"("rms_norm_eps":1e-5,"sliding_window":null,"rope_theta":1e6)"},
    {"mistral-nemo-12b", "Mistral NeMo 12B", 5120, 40, 32, 8, 128, 14336, 131072, 131072,
     R"("rms_norm_eps":1e-5,"sliding_window":null,"rope_theta":1e6)"},
    {"mistral-small-24b", "Mistral Small 3 24B", 5120, 40, 32, 8, 128, 32768, 131072, 32768,
     R"("rms_norm_eps":1e-5,"sliding_window":null,"rope_theta":1e8)"},
};

}  // namespace

const Family kMistral{
    .name = "mistral",
    .model_type = "mistral",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
