// Llama's config.json keys and tensor names, which most decoders use.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {

// The values of keys that a config.json omits.
struct LlamaDefaults {
  bool tied = false;
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  int64_t max_positions = 2048;
  double rope_theta = 10000;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  std::optional<int64_t> pad_id = std::nullopt;
  int64_t intermediate_size =
      0;  // of a class without this key, whose layers all have experts; 0: there must be one
};

// Sizes, norms' eps, rotation, activation and ids.
ModelConfig read_llama_keys(const ConfigJson& json, const Family& family, const LlamaDefaults& defaults = {});
// attention_bias: of all four projections; mlp_bias: of all three.
void read_llama_biases(const ConfigJson& json, ModelConfig& config);

// Writes the keys of read_llama_keys(), for a class of transformers ("LlamaForCausalLM"); without dropout.
nlohmann::ordered_json llama_keys(const ModelConfig& config, const char* architecture, DType dtype,
                                  const LlamaDefaults& defaults = {});

// model.layers.I.self_attn.q_proj and so on, with the norms' names of the config's norm_placement; of an FFN
// without a gate mlp.up_proj and mlp.down_proj.
std::vector<TensorRow> llama_tensors(const ModelConfig& config);
// Tensor names of a layer with experts: BLOCK.gate, BLOCK.experts.E.GATE and so on.
struct ExpertNames {
  const char* block = "mlp";
  const char* dense_block = "mlp";  // of layers without experts
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* shared = "shared_expert";
  const char* router = "gate";
  // All experts in BLOCK.experts.gate_up_proj and .down_proj, inputs first: gate and up as halves, or
  // alternating.
  enum class Fused : uint8_t { kNone, kHalves, kPairs } fused = Fused::kNone;
};
// Tensor names of a layer with a gated delta net, BLOCK.NAME.
struct DeltaNames {
  const char* block = "linear_attn";
  // How the projections are stored: [q | k | v], z, b and a each in one tensor (Qwen3.5); [q, k, v, z] and [b, a] of each
  // key head together (Qwen3-Next); or each in its own, and each of the three convolutions (OLMo Hybrid, Kimi Linear).
  enum class Stored : uint8_t { kByKind, kByKeyHead, kSeparate } stored = Stored::kByKind;
  const char* norm = "norm";
  const char* out = "out_proj";
  // Of the norms of such a layer.
  const char* before_mixer = "input_layernorm";
  const char* before_ffn = "post_attention_layernorm";
};
// llama_tensors_with_experts() of a model in which some layers have a gated delta net.
std::vector<TensorRow> hybrid_tensors(const ModelConfig& config, const DeltaNames& delta,
                                      const ExpertNames& experts = {});
std::vector<TensorRow> llama_tensors_with_experts(const ModelConfig& config, const ExpertNames& names = {});
// The same with q, k and v in one tensor, gate and up in another (Phi-3).
std::vector<TensorRow> fused_llama_tensors(const ModelConfig& config);
// Of a layer whose parameters begin with `ours`: the rows of a router without biases in the tensor `scores`, and those of
// groups, which only two levels have, in `groups`. Names are without ".weight".
void add_router_rows(const Experts& experts, const std::string& scores, const std::string& groups,
                     const std::string& ours, std::vector<TensorRow>& list);
// Whether a tensor is ignored: rotary tables, and the copy of a tied head.
bool llama_ignores(const ModelConfig& config, std::string_view name);

}  // namespace strata::models
