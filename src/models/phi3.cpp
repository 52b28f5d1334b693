// Phi-3, 3.5 and 4: Llama with fused projections in its files, LongRoPE, a window, heads that rotate in part.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  for (const char* dropout : {"resid_pdrop", "embd_pdrop"}) json.require_equal(dropout, 0.0);
  ModelConfig config =
      read_llama_keys(json, kPhi3, {.norm_eps = 1e-5, .max_positions = 4096, .pad_id = 32000});
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
  return json.dump(2) + "\n";
}

}  // namespace

const Family kPhi3{"phi3", "phi3", build_stack, read, write, fused_llama_tensors, llama_ignores, "model."};

}  // namespace strata::models
