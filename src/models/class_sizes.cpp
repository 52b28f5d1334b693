#include "models/class_sizes.h"

#include <algorithm>
#include <iterator>

#include "base/json.h"

namespace strata::models {
namespace {

struct ClassSizes {
  std::string_view model_type, sizes;
};

// From transformers 5.24; tests/models/config_files_test.cpp checks them against it.
constexpr ClassSizes kSizes[] = {
    {"llama", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"qwen2", R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32})"},
    {"qwen3", R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32})"},
    {"mistral", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8})"},
    {"phi3", R"({"vocab_size":32064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
      "num_attention_heads":32,"original_max_position_embeddings":4096})"},
    {"olmo", R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"olmo2", R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"olmo3", R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"smollm3", R"({"vocab_size":128256,"hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,
      "num_attention_heads":16,"num_key_value_heads":4})"},
    {"minimax_m2", R"({"vocab_size":200064,"hidden_size":3072,"intermediate_size":1536,"num_hidden_layers":62,
      "num_attention_heads":48,"num_key_value_heads":8})"},
    {"stablelm", R"({"vocab_size":50304,"hidden_size":2560,"intermediate_size":6912,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32})"},
    {"starcoder2", R"({"vocab_size":49152,"hidden_size":3072,"intermediate_size":12288,"num_hidden_layers":30,
      "num_attention_heads":24,"num_key_value_heads":2})"},
    {"gemma2", R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
      "num_attention_heads":8,"num_key_value_heads":4})"},
    {"gemma3_text",
     R"({"vocab_size":262208,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
      "num_attention_heads":8,"num_key_value_heads":4})"},
    {"gpt_neox", R"({"vocab_size":50432,"hidden_size":6144,"intermediate_size":24576,"num_hidden_layers":44,
      "num_attention_heads":64})"},
    {"gpt2", R"({"vocab_size":50257,"n_embd":768,"n_layer":12,"n_head":12})"},
    {"bert", R"({"vocab_size":30522,"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,
      "num_attention_heads":12})"},
    {"t5", R"({"vocab_size":32128,"d_model":512,"num_layers":6,"num_heads":8,"d_kv":64,"d_ff":2048})"},
    {"switch_transformers",
     R"({"vocab_size":32128,"d_model":768,"num_layers":12,"num_decoder_layers":12,"num_heads":12,"d_kv":64,
      "d_ff":2048})"},
    {"mixtral", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8})"},
    {"olmoe", R"({"vocab_size":50304,"hidden_size":2048,"intermediate_size":2048,"num_hidden_layers":16,
      "num_attention_heads":16})"},
    {"qwen2_moe", R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,
      "num_attention_heads":16,"num_key_value_heads":16})"},
    {"qwen3_moe", R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":24,
      "num_attention_heads":32,"num_key_value_heads":4})"},
    {"deepseek_v2", R"({"vocab_size":102400,"hidden_size":4096,"intermediate_size":11008,
      "num_hidden_layers":32,"num_attention_heads":32})"},
    {"deepseek_v3", R"({"vocab_size":129280,"hidden_size":7168,"intermediate_size":18432,
      "num_hidden_layers":61,"num_attention_heads":128})"},
    {"deepseek_v32", R"({"vocab_size":129280,"hidden_size":7168,"intermediate_size":18432,
      "num_hidden_layers":61,"num_attention_heads":128})"},
    {"glm_moe_dsa",
     R"({"vocab_size":154880,"hidden_size":6144,"intermediate_size":12288,"num_hidden_layers":78,
      "num_attention_heads":64,"q_lora_rank":2048,"qk_nope_head_dim":192,"v_head_dim":256})"},
    {"glm4_moe", R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":10944,"num_hidden_layers":46,
      "num_attention_heads":96,"num_key_value_heads":8})"},
    {"gpt_oss", R"({"vocab_size":201088,"hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":36,
      "num_attention_heads":64,"num_key_value_heads":8})"},
    {"qwen3_next", R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":48,
      "num_attention_heads":16,"num_key_value_heads":2})"},
    {"qwen3_5_text",
     R"({"vocab_size":248320,"hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":32,
      "num_attention_heads":16,"num_key_value_heads":4})"},
    {"qwen3_5_moe_text", R"({"vocab_size":248320,"hidden_size":2048,"num_hidden_layers":40,
      "num_attention_heads":16,"num_key_value_heads":2})"},
    {"olmo_hybrid",
     R"({"vocab_size":100352,"hidden_size":3840,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":30})"},
    {"kimi_linear", R"({"vocab_size":163840,"hidden_size":2304,"intermediate_size":9216,
      "num_hidden_layers":27,"num_attention_heads":32})"},
    {"mamba2", R"({"vocab_size":32768,"hidden_size":4096,"num_hidden_layers":64})"},
    {"nemotron_h", R"({"vocab_size":131072,"hidden_size":4096})"},
    {"granitemoehybrid",
     R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"falcon_h1",
     R"({"vocab_size":128000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"lfm2_moe", R"({"vocab_size":65536,"hidden_size":2048,"intermediate_size":7168,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"llama4_text", R"({"vocab_size":202048,"hidden_size":5120,"intermediate_size":8192,
      "num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8})"},
};

}  // namespace

std::string with_class_sizes(const Family& family, const std::string& text) {
  const auto known = std::find_if(std::begin(kSizes), std::end(kSizes), [&](const ClassSizes& sizes) {
    return sizes.model_type == family.model_type;
  });
  if (known == std::end(kSizes)) return text;
  auto json = parse_json<nlohmann::json>(text);
  const auto sizes = parse_json<nlohmann::json>(known->sizes);
  for (const auto& [key, size] : sizes.items()) {
    if (!json.contains(key)) json[key] = size;
  }
  return dump_json(json);
}

}  // namespace strata::models
