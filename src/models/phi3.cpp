// Phi-3, 3.5 and 4: Llama with fused projections in its files, LongRoPE, a window, heads that rotate in part.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"
#include "models/longrope_factors.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config =
      read_llama_keys(json, kPhi3, {.norm_eps = 1e-5, .max_positions = 4096, .pad_id = 32000});
  config.rope = json.rope(config.max_positions, 10000, nullptr, "rope_theta", /*original_outside=*/true);
  config.sliding_window.size = static_cast<int64_t>(json.real_or_none("sliding_window", 0));
  config.partial_rotary_factor = json.partial_rotary_factor(1);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Phi3ForCausalLM", dtype);
  json["sliding_window"] =
      config.sliding_window.size > 0 ? nlohmann::ordered_json(config.sliding_window.size) : nullptr;
  json["partial_rotary_factor"] = config.partial_rotary_factor;
  json["original_max_position_embeddings"] = config.rope.kind == ops::RopeScaling::Kind::kLongRope
                                                 ? static_cast<int64_t>(config.rope.original_positions)
                                                 : config.max_positions;
  json["embd_pdrop"] = 0.0;
  json["resid_pdrop"] = 0.0;
  return dump_json(json, 2) + "\n";
}

constexpr const char* kPhi3Ids = R"("bos_token_id":1,"eos_token_id":32000,"sliding_window":2047)";
constexpr PresetRow kPresets[] = {
    {"phi3-mini", "Phi-3 mini, 4k", 3072, 32, 32, 32, 96, 8192, 32064, 4096, kPhi3Ids},
    {"phi3-medium", "Phi-3 medium, 4k", 5120, 40, 40, 10, 128, 17920, 32064, 4096, kPhi3Ids},
    {"phi3-mini-128k", "Phi-3 mini, 128k", 3072, 32, 32, 32, 96, 8192, 32064, 131072, kPhi3Mini128k},
    {"phi3.5-mini", "Phi-3.5 mini", 3072, 32, 32, 32, 96, 8192, 32064, 131072, kPhi35Mini},
    {"phi4-mini", "Phi-4 mini", 3072, 32, 24, 8, 128, 8192, 200064, 131072, kPhi4Mini},
    {"phi4", "Phi-4", 5120, 40, 40, 10, 128, 17920, 100352, 16384,
     R"("bos_token_id":100257,"eos_token_id":100257,"rope_theta":250000)"},
};

}  // namespace

const Family kPhi3{
    .name = "phi3",
    .model_type = "phi3",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = fused_llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
