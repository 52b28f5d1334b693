// StarCoder2: LayerNorm, biases everywhere, an FFN without a gate, grouped queries, a window in every layer.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.tied = true,
                                  .norm_eps_key = "norm_epsilon",
                                  .norm_eps = 1e-5,
                                  .max_positions = 4096,
                                  .activation = "gelu_pytorch_tanh"};

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  // Keys of the first published files; transformers has neither these keys nor other kinds.
  json.require_equal("norm_type", "layer_norm");
  json.require_equal("mlp_type", "default");
  ModelConfig config = read_llama_keys(json, kStarCoder2, kDefaults);
  config.norm = layers::NormSpec::Kind::kLayer;
  config.gated = false;
  config.qkv_bias = config.out_bias = config.ffn_bias = json.boolean_or("use_bias", true);
  config.sliding_window.size = static_cast<int64_t>(json.real_or_none("sliding_window", 0));
  config.init_std = json.real_or("initializer_range", 0.018042);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Starcoder2ForCausalLM", dtype, kDefaults);
  json["embedding_dropout"] = 0.0;
  json["residual_dropout"] = 0.0;
  json["sliding_window"] =
      config.sliding_window.size > 0 ? nlohmann::ordered_json(config.sliding_window.size) : nullptr;
  json["use_bias"] = config.ffn_bias;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  std::vector<TensorRow> rows = llama_tensors(config);
  for (TensorRow& row : rows) {
    for (const auto& [llama, name] :
         {std::pair{".mlp.up_proj.", ".mlp.c_fc."}, {".mlp.down_proj.", ".mlp.c_proj."}}) {
      const size_t at = row.file_name.find(llama);
      if (at != std::string::npos) row.file_name.replace(at, std::string_view(llama).size(), name);
    }
  }
  return rows;
}

constexpr PresetRow kPresets[] = {
    {"starcoder2-3b", "StarCoder2 3B", 3072, 30, 24, 2, 128, 12288, 49152, 16384,
     R"("rope_theta":999999.4420358813,"sliding_window":4096,"bos_token_id":0,"eos_token_id":0)"},
    {"starcoder2-7b", "StarCoder2 7B", 4608, 32, 36, 4, 128, 18432, 49152, 16384,
     R"("rope_theta":1e6,"sliding_window":4096,"bos_token_id":0,"eos_token_id":0)"},
    {"starcoder2-15b", "StarCoder2 15B", 6144, 40, 48, 4, 128, 24576, 49152, 16384,
     R"("rope_theta":1e5,"sliding_window":4096,"bos_token_id":0,"eos_token_id":0,"tie_word_embeddings":false,
        "initializer_range":0.01275)"},
};

}  // namespace

const Family kStarCoder2{
    .name = "starcoder2",
    .model_type = "starcoder2",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
