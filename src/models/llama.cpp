// Llama 1 to 3.3 and SmolLM: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  json.require_equal("pretraining_tp", 1);
  ModelConfig config = read_llama_keys(json, kLlama);
  read_llama_biases(json, config);
  config.init = InitScheme::kScaledResidual;
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "LlamaForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  json["mlp_bias"] = config.ffn_bias;
  json["pretraining_tp"] = 1;
  return dump_json(json, 2) + "\n";
}

// The first ones are Strata's, from seconds on a laptop to a day on a GPU; the others are published models.
constexpr const char* kOurs = R"("rms_norm_eps":1e-5,"tie_word_embeddings":true)";
constexpr const char* kLlama2 = R"("rms_norm_eps":1e-5,"bos_token_id":1,"eos_token_id":2)";
constexpr const char* kLlama30 =
    R"("rms_norm_eps":1e-5,"rope_theta":5e5,"bos_token_id":128000,"eos_token_id":128001)";
constexpr const char* kLlama31 =
    R"("rms_norm_eps":1e-5,"rope_theta":5e5,"bos_token_id":128000,"eos_token_id":128001,
       "rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,
                       "original_max_position_embeddings":8192})";
constexpr const char* kLlama32 =
    R"("rms_norm_eps":1e-5,"rope_theta":5e5,"bos_token_id":128000,"eos_token_id":128001,"tie_word_embeddings":true,
       "rope_scaling":{"rope_type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,
                       "original_max_position_embeddings":8192})";
constexpr const char* kSmol =
    R"("rms_norm_eps":1e-5,"tie_word_embeddings":true,"bos_token_id":0,"eos_token_id":0)";
constexpr const char* kSmol2 =
    R"("rms_norm_eps":1e-5,"tie_word_embeddings":true,"bos_token_id":0,"eos_token_id":0,"rope_theta":1e5)";
constexpr const char* kSmol2Large =
    R"("rms_norm_eps":1e-5,"tie_word_embeddings":true,"bos_token_id":0,"eos_token_id":0,"rope_theta":1.3e5)";
constexpr PresetRow kPresets[] = {
    {"llama3-5m", "seconds a hundred steps on a laptop: the demo and tests", 256, 4, 4, 2, 64, 768, 4096,
     1024, kOurs},
    {"llama3-29m", "an hour on a laptop: readable text from tens of MB", 512, 8, 8, 4, 64, 1536, 8192, 2048,
     kOurs},
    {"llama3-60m", "overnight on a workstation", 640, 12, 10, 5, 64, 1920, 16384, 2048, kOurs},
    {"llama3-125m", "GPT-2's size with Llama's blocks", 768, 12, 12, 4, 64, 2304, 32000, 2048, kOurs},
    {"llama3-350m", "a day on one GPU", 1024, 24, 16, 8, 64, 3072, 32000, 2048, kOurs},
    {"llama3-1b", "the architecture of Llama 3.2 1B", 2048, 16, 32, 8, 64, 8192, 128256, 131072, kLlama32},
    {"llama-7b", "Llama 7B", 4096, 32, 32, 32, 128, 11008, 32000, 2048,
     R"("bos_token_id":1,"eos_token_id":2)"},
    {"llama-13b", "Llama 13B", 5120, 40, 40, 40, 128, 13824, 32000, 2048,
     R"("bos_token_id":1,"eos_token_id":2)"},
    {"llama-33b", "Llama 33B", 6656, 60, 52, 52, 128, 17920, 32000, 2048,
     R"("bos_token_id":1,"eos_token_id":2)"},
    {"llama-65b", "Llama 65B", 8192, 80, 64, 64, 128, 22016, 32000, 2048,
     R"("rms_norm_eps":1e-5,"bos_token_id":1,"eos_token_id":2)"},
    {"llama2-7b", "Llama 2 7B", 4096, 32, 32, 32, 128, 11008, 32000, 4096, kLlama2},
    {"llama2-13b", "Llama 2 13B", 5120, 40, 40, 40, 128, 13824, 32000, 4096, kLlama2},
    {"llama2-70b", "Llama 2 70B", 8192, 80, 64, 8, 128, 28672, 32000, 4096, kLlama2},
    {"llama3-8b", "Llama 3 8B", 4096, 32, 32, 8, 128, 14336, 128256, 8192, kLlama30},
    {"llama3-70b", "Llama 3 70B", 8192, 80, 64, 8, 128, 28672, 128256, 8192, kLlama30},
    {"llama3.1-8b", "Llama 3.1 8B", 4096, 32, 32, 8, 128, 14336, 128256, 131072, kLlama31},
    {"llama3.1-70b", "Llama 3.1 and 3.3 70B", 8192, 80, 64, 8, 128, 28672, 128256, 131072, kLlama31},
    {"llama3.1-405b", "Llama 3.1 405B", 16384, 126, 128, 8, 128, 53248, 128256, 131072, kLlama31},
    {"llama3.2-1b", "Llama 3.2 1B", 2048, 16, 32, 8, 64, 8192, 128256, 131072, kLlama32},
    {"llama3.2-3b", "Llama 3.2 3B", 3072, 28, 24, 8, 128, 8192, 128256, 131072, kLlama32},
    {"smollm-135m", "SmolLM 135M", 576, 30, 9, 3, 64, 1536, 49152, 2048, kSmol},
    {"smollm-360m", "SmolLM 360M", 960, 32, 15, 5, 64, 2560, 49152, 2048, kSmol},
    {"smollm-1.7b", "SmolLM 1.7B", 2048, 24, 32, 32, 64, 8192, 49152, 2048, kSmol},
    {"smollm2-135m", "SmolLM2 135M", 576, 30, 9, 3, 64, 1536, 49152, 8192, kSmol2},
    {"smollm2-360m", "SmolLM2 360M", 960, 32, 15, 5, 64, 2560, 49152, 8192, kSmol2},
    {"smollm2-1.7b", "SmolLM2 1.7B", 2048, 24, 32, 32, 64, 8192, 49152, 8192, kSmol2Large},
};

}  // namespace

const Family kLlama{
    .name = "llama3",
    .model_type = "llama",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
