#include "interop/gguf_families.h"

#include <algorithm>

namespace strata::interop {
namespace {

const Names kPlain{
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};

const Names kLlamaLayer{{"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
                        {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
                        {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
                        {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
                        {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
                        {"mlp.down_proj", "ffn_down"}};

// Names of a model with experts, whose own names are in GgufFamily::experts.
Names with_experts(Names names, std::string_view router, std::string_view shared = "mlp.shared_expert") {
  struct Shared {
    std::string_view block, gate, up, down;
  };
  static constexpr Shared kShared[] = {
      {"mlp.shared_expert", "mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
       "mlp.shared_expert.down_proj"},
      {"mlp.shared_experts", "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
       "mlp.shared_experts.down_proj"},
      {"feed_forward.shared_expert", "feed_forward.shared_expert.gate_proj",
       "feed_forward.shared_expert.up_proj", "feed_forward.shared_expert.down_proj"}};
  std::erase_if(names, [](const auto& each) { return each.first.starts_with("mlp."); });
  names.push_back({router, "ffn_gate_inp"});
  const Shared& of = *std::find_if(std::begin(kShared), std::end(kShared),
                                   [&](const Shared& each) { return each.block == shared; });
  names.insert(names.end(),
               {{of.gate, "ffn_gate_shexp"}, {of.up, "ffn_up_shexp"}, {of.down, "ffn_down_shexp"}});
  names.push_back({"mlp.shared_expert_gate", "ffn_gate_inp_shexp"});
  return names;
}

// The second norm of a layer has the name of a norm after attention.
Names with_norm_after_attention(Names names) {
  for (auto& [ours, theirs] : names)
    if (ours == "post_attention_layernorm") theirs = "post_attention_norm";
  return names;
}

Names of_gpt_oss() {
  Names names = with_norm_after_attention(with_experts(kLlamaLayer, "mlp.router"));
  names.push_back({"self_attn.sinks", "attn_sinks"});
  return names;
}

// Dense layers first, then experts selected with a bias, and shared experts.
Names with_later_experts() {
  Names names = with_experts(kLlamaLayer, "mlp.gate", "mlp.shared_experts");
  for (const std::string_view part : {"gate", "up", "down"}) {
    const auto dense = std::find_if(kLlamaLayer.begin(), kLlamaLayer.end(),
                                    [&](const auto& each) { return each.second.ends_with(part); });
    names.push_back(*dense);
  }
  names.push_back({"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"});
  return names;
}

Names of_glm() {
  return with_norm_after_attention(with_later_experts());
}

// DeepSeek's: latents; kv_b_proj is two tensors (add_latent_tensors).
Names of_deepseek() {
  Names names = with_later_experts();
  names.insert(names.end(), {{"self_attn.q_a_proj", "attn_q_a"},
                             {"self_attn.q_a_layernorm", "attn_q_a_norm"},
                             {"self_attn.q_b_proj", "attn_q_b"},
                             {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                             {"self_attn.kv_a_layernorm", "attn_kv_a_norm"}});
  return names;
}

// Sparse attention: its indexer too.
Names of_deepseek_with_indexer() {
  Names names = of_deepseek();
  names.insert(names.end(), {{"self_attn.indexer.wq_b", "indexer.attn_q_b"},
                             {"self_attn.indexer.wk", "indexer.attn_k"},
                             {"self_attn.indexer.k_norm", "indexer.k_norm"},
                             {"self_attn.indexer.weights_proj", "indexer.proj"}});
  return names;
}

// Attention and experts of Qwen3-Next; the names of its delta nets are in gguf_mixers.cpp.
Names of_qwen_next() {
  return with_norm_after_attention(with_experts(kLlamaLayer, "mlp.gate"));
}

// MiniMax's: the router's bias is next to the router.
Names of_minimax() {
  Names names = with_experts(kLlamaLayer, "block_sparse_moe.gate");
  names.push_back({"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"});
  return names;
}

// Granite's: two matrices of the shared block, or of the only one, are one in the file (add_fused_ffn).
Names of_granite() {
  return with_experts(kLlamaLayer, "block_sparse_moe.router.layer");
}

// Kimi Linear's: latent attention, or a delta net under the same prefix (gguf_mixers.cpp).
Names of_kimi_linear() {
  Names names = kLlamaLayer;
  names.insert(names.end(), {{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                             {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
                             {"block_sparse_moe.gate", "ffn_gate_inp"},
                             {"block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias"},
                             {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
                             {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
                             {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"}});
  return names;
}

// Nemotron-H's: one mixer or FFN in each layer.
Names of_nemotron_h() {
  return {{"norm", "attn_norm"},
          {"mixer.q_proj", "attn_q"},
          {"mixer.k_proj", "attn_k"},
          {"mixer.v_proj", "attn_v"},
          {"mixer.o_proj", "attn_output"},
          {"mixer.up_proj", "ffn_up"},
          {"mixer.down_proj", "ffn_down"},
          {"mixer.gate", "ffn_gate_inp"},
          {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
          {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
          {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
          {"mixer.fc1_latent_proj", "ffn_latent_down"},
          {"mixer.fc2_latent_proj", "ffn_latent_up"}};
}

// LFM2's: norms before the mixer and before the FFN, w1 and w3 as gate and up.
Names of_lfm2() {
  return {{"operator_norm", "attn_norm"},
          {"ffn_norm", "ffn_norm"},
          {"self_attn.q_proj", "attn_q"},
          {"self_attn.k_proj", "attn_k"},
          {"self_attn.v_proj", "attn_v"},
          {"self_attn.out_proj", "attn_output"},
          {"self_attn.q_layernorm", "attn_q_norm"},
          {"self_attn.k_layernorm", "attn_k_norm"},
          {"feed_forward.w1", "ffn_gate"},
          {"feed_forward.w2", "ffn_down"},
          {"feed_forward.w3", "ffn_up"},
          {"feed_forward.gate", "ffn_gate_inp"},
          {"feed_forward.expert_bias", "exp_probs_b.bias"}};
}

// Llama 4's: its FFNs have another prefix.
Names of_llama4() {
  Names names = with_experts(kLlamaLayer, "feed_forward.router", "feed_forward.shared_expert");
  names.insert(names.end(), {{"feed_forward.gate_proj", "ffn_gate"},
                             {"feed_forward.up_proj", "ffn_up"},
                             {"feed_forward.down_proj", "ffn_down"}});
  return names;
}

// Adapts names to norms after each block, in addition or only there.
Names with_post_norms(Names names) {
  for (auto& [ours, theirs] : names) {
    if (ours == "post_attention_layernorm") theirs = "post_attention_norm";
  }
  names.push_back({"pre_feedforward_layernorm", "ffn_norm"});
  names.push_back({"post_feedforward_layernorm", "post_ffw_norm"});
  return names;
}

// Adapts names to an FFN without a gate.
Names with_plain_ffn(Names names, std::string_view up, std::string_view down) {
  std::erase_if(names, [](const auto& each) { return each.first.starts_with("mlp."); });
  names.push_back({up, "ffn_up"});
  names.push_back({down, "ffn_down"});
  return names;
}

// Falcon-H1's: the FFN has other names.
Names of_falcon_h1() {
  Names names = with_plain_ffn(kLlamaLayer, "feed_forward.up_proj", "feed_forward.down_proj");
  for (auto& [ours, theirs] : names)
    if (ours == "post_attention_layernorm") {
      ours = "pre_ff_layernorm";
      theirs = "ffn_norm!";
    }
  names.push_back({"feed_forward.gate_proj", "ffn_gate"});
  return names;
}

std::vector<GgufFamily> with_plain_outside(std::vector<GgufFamily> families) {
  for (GgufFamily& family : families)
    if (family.outside.empty()) family.outside = kPlain;
  return families;
}

}  // namespace

std::span<const GgufFamily> gguf_families() {
  static const std::vector<GgufFamily> families = with_plain_outside({
      {.model_type = "llama",
       .architecture = "llama",
       .inside = kLlamaLayer,
       .rotates_pairs = true,
       .biases = Biases::kAny,
       .rope_tables = true},
      {.model_type = "mistral",
       .architecture = "llama",
       .inside = kLlamaLayer,
       .rotates_pairs = true,
       .rope_tables = true},
      {.model_type = "qwen2", .architecture = "qwen2", .inside = kLlamaLayer, .biases = Biases::kOfQkv},
      {.model_type = "qwen3", .architecture = "qwen3", .inside = kLlamaLayer},
      {.model_type = "olmo", .architecture = "olmo", .inside = kLlamaLayer, .rotates_pairs = true},
      {.model_type = "olmo2", .architecture = "olmo2", .inside = with_post_norms(kLlamaLayer)},
      {.model_type = "gemma2",
       .architecture = "gemma2",
       .inside = with_post_norms(kLlamaLayer),
       .norms_plus_one = true,
       .activation = ActivationKind::kGeluTanh},
      {.model_type = "gemma3_text",
       .architecture = "gemma3",
       .inside = with_post_norms(kLlamaLayer),
       .norms_plus_one = true,
       .activation = ActivationKind::kGeluTanh},
      {.model_type = "phi3",
       .architecture = "phi3",
       .inside = {{"input_layernorm", "attn_norm"},
                  {"self_attn.qkv_proj", "attn_qkv"},
                  {"self_attn.o_proj", "attn_output"},
                  {"post_attention_layernorm", "ffn_norm"},
                  {"mlp.gate_up_proj", "ffn_up"},
                  {"mlp.down_proj", "ffn_down"}},
       .rope_tables = true},
      {.model_type = "gpt_neox",
       .architecture = "gptneox",
       .layers = "gpt_neox.layers.",
       .outside = {{"gpt_neox.embed_in", "token_embd"},
                   {"gpt_neox.final_layer_norm", "output_norm"},
                   {"embed_out", "output"}},
       .inside = {{"input_layernorm", "attn_norm"},
                  {"attention.query_key_value", "attn_qkv"},
                  {"attention.dense", "attn_output"},
                  {"post_attention_layernorm", "ffn_norm"},
                  {"mlp.dense_h_to_4h", "ffn_up"},
                  {"mlp.dense_4h_to_h", "ffn_down"}},
       .activation = ActivationKind::kGeluErf,
       .biases = Biases::kAll},
      {.model_type = "gpt2",
       .architecture = "gpt2",
       .layers = "transformer.h.",
       .outside = {{"transformer.wte", "token_embd"},
                   {"transformer.wpe", "position_embd"},
                   {"transformer.ln_f", "output_norm"},
                   {"lm_head", "output"}},
       .inside = {{"ln_1", "attn_norm"},
                  {"attn.c_attn", "attn_qkv"},
                  {"attn.c_proj", "attn_output"},
                  {"ln_2", "ffn_norm"},
                  {"mlp.c_fc", "ffn_up"},
                  {"mlp.c_proj", "ffn_down"}},
       .activation = ActivationKind::kGeluTanh,
       .biases = Biases::kAll},
      {.model_type = "starcoder2",
       .architecture = "starcoder2",
       .inside = with_plain_ffn(kLlamaLayer, "mlp.c_fc", "mlp.c_proj"),
       .activation = ActivationKind::kGeluTanh,
       .biases = Biases::kAll,
       .heads_share_width = true},
      {.model_type = "stablelm",
       .architecture = "stablelm",
       .inside = kLlamaLayer,
       .biases = Biases::kOfQkv,
       .heads_share_width = true},
      {.model_type = "mixtral",
       .architecture = "llama",
       .inside = with_experts(kLlamaLayer, "block_sparse_moe.gate"),
       .rotates_pairs = true,
       .rope_tables = true,
       .experts = {"block_sparse_moe.experts.", "w1", "w3", "w2"}},
      {.model_type = "olmoe",
       .architecture = "olmoe",
       .inside = with_experts(kLlamaLayer, "mlp.gate"),
       .experts = kExpertParts},
      {.model_type = "qwen2_moe",
       .architecture = "qwen2moe",
       .inside = with_experts(kLlamaLayer, "mlp.gate"),
       .biases = Biases::kOfQkv,
       .experts = kExpertParts},
      {.model_type = "qwen3_moe",
       .architecture = "qwen3moe",
       .inside = with_experts(kLlamaLayer, "mlp.gate"),
       .experts = kExpertParts},
      {.model_type = "gpt_oss",
       .architecture = "gpt-oss",
       .inside = of_gpt_oss(),
       .biases = Biases::kAny,
       .experts = kExpertParts},
      {.model_type = "glm4_moe",
       .architecture = "glm4moe",
       .inside = of_glm(),
       .biases = Biases::kOfQkv,
       .experts = kExpertParts},
      {.model_type = "deepseek_v2",
       .architecture = "deepseek2",
       .inside = of_deepseek(),
       .experts = kExpertParts},
      {.model_type = "deepseek_v3",
       .architecture = "deepseek2",
       .inside = of_deepseek(),
       .experts = kExpertParts},
      {.model_type = "kimi_k2",
       .architecture = "deepseek2",
       .inside = of_deepseek(),
       .experts = kExpertParts},
      {.model_type = "deepseek_v32",
       .architecture = "deepseek32",
       .inside = of_deepseek_with_indexer(),
       .experts = kExpertParts},
      {.model_type = "glm_moe_dsa",
       .architecture = "glm-dsa",
       .inside = of_deepseek_with_indexer(),
       .experts = kExpertParts},
      {.model_type = "qwen3_next",
       .architecture = "qwen3next",
       .inside = of_qwen_next(),
       .norms_plus_one = true,
       .experts = kExpertParts},
      {.model_type = "qwen3_5_text",
       .architecture = "qwen35",
       .inside = with_norm_after_attention(kLlamaLayer),
       .norms_plus_one = true},
      {.model_type = "qwen3_5_moe_text",
       .architecture = "qwen35moe",
       .inside = of_qwen_next(),
       .norms_plus_one = true,
       .experts = kExpertParts},
      {.model_type = "mamba2",
       .architecture = "mamba2",
       .layers = "backbone.layers.",
       .outside = {{"backbone.embeddings", "token_embd"},
                   {"backbone.norm_f", "output_norm"},
                   {"lm_head", "output"}},
       .inside = {{"norm", "attn_norm"}}},
      {.model_type = "kimi_linear",
       .architecture = "kimi-linear",
       .inside = of_kimi_linear(),
       .experts = {"block_sparse_moe.experts.", "w1", "w3", "w2"}},
      {.model_type = "nemotron_h",
       .architecture = "nemotron_h_moe",
       .layers = "backbone.layers.",
       .outside = {{"backbone.embeddings", "token_embd"},
                   {"backbone.norm_f", "output_norm"},
                   {"lm_head", "output"}},
       .inside = of_nemotron_h(),
       .rotates_pairs = true,  // as the converter does, though nothing rotates
       .activation = ActivationKind::kRelu2,
       .experts = {"mixer.experts.", "gate_proj", "up_proj", "down_proj"}},
      {.model_type = "nemotron_h",
       .architecture = "nemotron_h",
       .layers = "backbone.layers.",
       .outside = {{"backbone.embeddings", "token_embd"},
                   {"backbone.norm_f", "output_norm"},
                   {"lm_head", "output"}},
       .inside = of_nemotron_h(),
       .rotates_pairs = true,  // as the converter does, though nothing rotates
       .activation = ActivationKind::kRelu2},
      {.model_type = "falcon_h1",
       .architecture = "falcon-h1",
       .outside = {{"model.embed_tokens", "token_embd"},
                   {"model.final_layernorm", "output_norm"},
                   {"lm_head", "output"}},
       .inside = of_falcon_h1()},
      {.model_type = "granitemoehybrid",
       .architecture = "granitehybrid",
       .inside = of_granite(),
       .rotates_pairs = true,
       .experts = {"block_sparse_moe.", "gate", "input_linear", "output_linear"}},
      {.model_type = "lfm2_moe",
       .architecture = "lfm2moe",
       .outside = {{"model.embed_tokens", "token_embd"},
                   {"model.embedding_norm", "token_embd_norm"},
                   {"lm_head", "output"}},
       .inside = of_lfm2(),
       .experts = {"feed_forward.experts.", "w1", "w3", "w2"}},
      {.model_type = "olmo3", .architecture = "olmo2", .inside = with_post_norms(kLlamaLayer)},
      {.model_type = "smollm3", .architecture = "smollm3", .inside = kLlamaLayer, .rotates_pairs = true},
      {.model_type = "minimax_m2",
       .architecture = "minimax-m2",
       .inside = of_minimax(),
       .experts = {"block_sparse_moe.experts.", "w1", "w3", "w2"}},
      {.model_type = "llama4_text",
       .architecture = "llama4",
       .inside = of_llama4(),
       .rope_tables = true,
       .experts = {"feed_forward.experts.", "gate_proj", "up_proj", "down_proj"}},
  });
  return families;
}

}  // namespace strata::interop
