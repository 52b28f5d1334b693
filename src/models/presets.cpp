#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/suggest.h"
#include "models/families.h"
#include "models/longrope_factors.h"
#include "models/model.h"

namespace strata::models {
namespace {

// A row of the tables below. `more` is what else its config.json says, as JSON without the braces.
struct Row {
  const char* name;
  const char* note;
  int64_t width, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
  const char* more;
};

ModelConfig config_of(const Family& family, const Row& row) {
  nlohmann::json json = nlohmann::json::parse("{" + std::string(row.more) + "}");
  json["model_type"] = family.model_type;
  json["vocab_size"] = row.vocab;
  if (&family == &kGpt2) {
    json.update({{"n_embd", row.width},
                 {"n_layer", row.layers},
                 {"n_head", row.heads},
                 {"n_inner", row.ffn},
                 {"n_positions", row.positions}});
  } else if (&family == &kT5) {
    json.update({{"d_model", row.width},
                 {"num_layers", row.layers},
                 {"num_heads", row.heads},
                 {"d_kv", row.head_dim},
                 {"d_ff", row.ffn},
                 {"n_positions", row.positions}});
  } else {
    json.update({{"hidden_size", row.width},
                 {"num_hidden_layers", row.layers},
                 {"num_attention_heads", row.heads},
                 {"num_key_value_heads", row.kv_heads},
                 {"head_dim", row.head_dim},
                 {"intermediate_size", row.ffn},
                 {"max_position_embeddings", row.positions}});
  }
  return family.read(json.dump(), row.name);
}

// The first ones are ours, from seconds on a laptop to a day on a GPU; the others are as they were published.
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
constexpr Row kLlamaRows[] = {
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

constexpr Row kMistralRows[] = {
    {"mistral-7b", "Mistral 7B v0.1, windows of 4096", 4096, 32, 32, 8, 128, 14336, 32000, 32768,
     R"("rms_norm_eps":1e-5,"sliding_window":4096)"},
    {"mistral-7b-v0.3", "Mistral 7B v0.3", 4096, 32, 32, 8, 128, 14336, 32768, 32768,
     R"("rms_norm_eps":1e-5,"sliding_window":null,"rope_theta":1e6)"},
    {"mistral-nemo-12b", "Mistral NeMo 12B", 5120, 40, 32, 8, 128, 14336, 131072, 131072,
     R"("rms_norm_eps":1e-5,"sliding_window":null,"rope_theta":1e6)"},
    {"mistral-small-24b", "Mistral Small 3 24B", 5120, 40, 32, 8, 128, 32768, 131072, 32768,
     R"("rms_norm_eps":1e-5,"sliding_window":null,"rope_theta":1e8)"},
};

constexpr const char* kQwenTied =
    R"("rope_theta":1e6,"tie_word_embeddings":true,"bos_token_id":151643,"eos_token_id":151643)";
constexpr const char* kQwenUntied = R"("rope_theta":1e6,"bos_token_id":151643,"eos_token_id":151643)";
constexpr const char* kQwenLarge =
    R"("rope_theta":1e6,"rms_norm_eps":1e-5,"bos_token_id":151643,"eos_token_id":151643)";
constexpr Row kQwen2Rows[] = {
    {"qwen2-0.5b", "Qwen2 0.5B", 896, 24, 14, 2, 64, 4864, 151936, 131072, kQwenTied},
    {"qwen2-1.5b", "Qwen2 1.5B", 1536, 28, 12, 2, 128, 8960, 151936, 131072, kQwenTied},
    {"qwen2-7b", "Qwen2 7B", 3584, 28, 28, 4, 128, 18944, 152064, 131072, kQwenUntied},
    {"qwen2-72b", "Qwen2 72B", 8192, 80, 64, 8, 128, 29568, 152064, 131072, kQwenLarge},
    {"qwen2.5-0.5b", "Qwen2.5 0.5B", 896, 24, 14, 2, 64, 4864, 151936, 32768, kQwenTied},
    {"qwen2.5-1.5b", "Qwen2.5 1.5B", 1536, 28, 12, 2, 128, 8960, 151936, 131072, kQwenTied},
    {"qwen2.5-3b", "Qwen2.5 3B", 2048, 36, 16, 2, 128, 11008, 151936, 32768, kQwenTied},
    {"qwen2.5-7b", "Qwen2.5 7B", 3584, 28, 28, 4, 128, 18944, 152064, 131072, kQwenUntied},
    {"qwen2.5-14b", "Qwen2.5 14B", 5120, 48, 40, 8, 128, 13824, 152064, 131072, kQwenLarge},
    {"qwen2.5-32b", "Qwen2.5 32B", 5120, 64, 40, 8, 128, 27648, 152064, 131072, kQwenLarge},
    {"qwen2.5-72b", "Qwen2.5 72B", 8192, 80, 64, 8, 128, 29568, 152064, 131072, kQwenLarge},
};

constexpr Row kQwen3Rows[] = {
    {"qwen3-0.6b", "Qwen3 0.6B", 1024, 28, 16, 8, 128, 3072, 151936, 40960, kQwenTied},
    {"qwen3-1.7b", "Qwen3 1.7B", 2048, 28, 16, 8, 128, 6144, 151936, 40960, kQwenTied},
    {"qwen3-4b", "Qwen3 4B", 2560, 36, 32, 8, 128, 9728, 151936, 40960, kQwenTied},
    {"qwen3-8b", "Qwen3 8B", 4096, 36, 32, 8, 128, 12288, 151936, 40960, kQwenUntied},
    {"qwen3-14b", "Qwen3 14B", 5120, 40, 40, 8, 128, 17408, 151936, 40960, kQwenUntied},
    {"qwen3-32b", "Qwen3 32B", 5120, 64, 64, 8, 128, 25600, 151936, 40960, kQwenUntied},
};

constexpr const char* kOlmo2Ids = R"("rms_norm_eps":1e-6,"rope_theta":5e5,"eos_token_id":100257)";
constexpr const char* kOlmoClipped = R"("clip_qkv":8,"eos_token_id":50279)";
constexpr Row kOlmoRows[] = {
    {"olmo-1b", "OLMo 1B", 2048, 16, 16, 16, 128, 8192, 50304, 2048,
     R"("tie_word_embeddings":true,"eos_token_id":50279)"},
    {"olmo-7b", "OLMo 7B", 4096, 32, 32, 32, 128, 11008, 50304, 2048, R"("eos_token_id":50279)"},
    {"olmo-1b-0724", "OLMo 1B of July 2024", 2048, 16, 16, 16, 128, 8192, 50304, 4096, kOlmoClipped},
    {"olmo-7b-0424", "OLMo 1.7 7B", 4096, 32, 32, 32, 128, 11008, 50304, 4096, kOlmoClipped},
};
constexpr Row kOlmo2Rows[] = {
    {"olmo2-1b", "OLMo 2 1B", 2048, 16, 16, 16, 128, 8192, 100352, 4096, kOlmo2Ids},
    {"olmo2-7b", "OLMo 2 7B", 4096, 32, 32, 32, 128, 11008, 100352, 4096, kOlmo2Ids},
    {"olmo2-13b", "OLMo 2 13B", 5120, 40, 40, 40, 128, 13824, 100352, 4096, kOlmo2Ids},
    {"olmo2-32b", "OLMo 2 32B", 5120, 64, 40, 8, 128, 27648, 100352, 4096, kOlmo2Ids},
};

constexpr const char* kGemma2Ids = R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":256)";
constexpr Row kGemma2Rows[] = {
    {"gemma2-2b", "Gemma 2 2B", 2304, 26, 8, 4, 256, 9216, 256000, 8192, kGemma2Ids},
    {"gemma2-9b", "Gemma 2 9B", 3584, 42, 16, 8, 256, 14336, 256000, 8192, kGemma2Ids},
    {"gemma2-27b", "Gemma 2 27B", 4608, 46, 32, 16, 128, 36864, 256000, 8192,
     R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":144)"},
};
constexpr const char* kGemma3Small =
    R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":256,"sliding_window":512)";
constexpr const char* kGemma3Large =
    R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":256,"sliding_window":1024,
       "rope_scaling":{"rope_type":"linear","factor":8})";
constexpr Row kGemma3Rows[] = {
    {"gemma3-270m", "Gemma 3 270M", 640, 18, 4, 1, 256, 2048, 262144, 32768, kGemma3Small},
    {"gemma3-1b", "Gemma 3 1B", 1152, 26, 4, 1, 256, 6912, 262144, 32768, kGemma3Small},
    {"gemma3-4b", "Gemma 3 4B, its text model", 2560, 34, 8, 4, 256, 10240, 262208, 131072, kGemma3Large},
    {"gemma3-12b", "Gemma 3 12B, its text model", 3840, 48, 16, 8, 256, 15360, 262208, 131072, kGemma3Large},
    {"gemma3-27b", "Gemma 3 27B, its text model", 5376, 62, 32, 16, 128, 21504, 262208, 131072,
     R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":168,"sliding_window":1024,
        "rope_scaling":{"rope_type":"linear","factor":8})"},
};

constexpr const char* kPhi3Ids = R"("bos_token_id":1,"eos_token_id":32000,"sliding_window":2047)";
constexpr Row kPhi3Rows[] = {
    {"phi3-mini", "Phi-3 mini, 4k", 3072, 32, 32, 32, 96, 8192, 32064, 4096, kPhi3Ids},
    {"phi3-medium", "Phi-3 medium, 4k", 5120, 40, 40, 10, 128, 17920, 32064, 4096, kPhi3Ids},
    {"phi3-mini-128k", "Phi-3 mini, 128k", 3072, 32, 32, 32, 96, 8192, 32064, 131072, kPhi3Mini128k},
    {"phi3.5-mini", "Phi-3.5 mini", 3072, 32, 32, 32, 96, 8192, 32064, 131072, kPhi35Mini},
    {"phi4-mini", "Phi-4 mini", 3072, 32, 24, 8, 128, 8192, 200064, 131072, kPhi4Mini},
    {"phi4", "Phi-4", 5120, 40, 40, 10, 128, 17920, 100352, 16384,
     R"("bos_token_id":100257,"eos_token_id":100257,"rope_theta":250000)"},
};

constexpr const char* kPythia = R"("bos_token_id":0,"eos_token_id":0)";
constexpr Row kNeoXRows[] = {
    {"pythia-14m", "Pythia 14M", 128, 6, 4, 4, 32, 512, 50304, 2048, kPythia},
    {"pythia-31m", "Pythia 31M", 256, 6, 8, 8, 32, 1024, 50304, 2048, kPythia},
    {"pythia-70m", "Pythia 70M", 512, 6, 8, 8, 64, 2048, 50304, 2048, kPythia},
    {"pythia-160m", "Pythia 160M", 768, 12, 12, 12, 64, 3072, 50304, 2048, kPythia},
    {"pythia-410m", "Pythia 410M", 1024, 24, 16, 16, 64, 4096, 50304, 2048, kPythia},
    {"pythia-1b", "Pythia 1B", 2048, 16, 8, 8, 256, 8192, 50304, 2048, kPythia},
    {"pythia-1.4b", "Pythia 1.4B", 2048, 24, 16, 16, 128, 8192, 50304, 2048, kPythia},
    {"pythia-2.8b", "Pythia 2.8B", 2560, 32, 32, 32, 80, 10240, 50304, 2048, kPythia},
    {"pythia-6.9b", "Pythia 6.9B", 4096, 32, 32, 32, 128, 16384, 50432, 2048, kPythia},
    {"pythia-12b", "Pythia 12B", 5120, 36, 40, 40, 128, 20480, 50688, 2048, kPythia},
    {"gpt-neox-20b", "GPT-NeoX 20B", 6144, 44, 64, 64, 96, 24576, 50432, 2048,
     R"("bos_token_id":0,"eos_token_id":0,"hidden_act":"gelu_fast")"},
};

constexpr const char* kGpt2Ids = R"("bos_token_id":50256,"eos_token_id":50256)";
constexpr Row kGpt2Rows[] = {
    {"gpt2-124m", "GPT-2 small", 768, 12, 12, 12, 64, 3072, 50257, 1024, kGpt2Ids},
    {"gpt2-355m", "GPT-2 medium", 1024, 24, 16, 16, 64, 4096, 50257, 1024, kGpt2Ids},
    {"gpt2-774m", "GPT-2 large", 1280, 36, 20, 20, 64, 5120, 50257, 1024, kGpt2Ids},
    {"gpt2-1.5b", "GPT-2 XL", 1600, 48, 25, 25, 64, 6400, 50257, 1024, kGpt2Ids},
};

// The sizes of Devlin et al. 2019, and the smaller ones of Turc et al. 2019.
constexpr const char* kBertIds = R"("bos_token_id":101,"eos_token_id":102,"pad_token_id":0)";
constexpr Row kBertRows[] = {
    {"bert-tiny", "BERT tiny, uncased", 128, 2, 2, 2, 64, 512, 30522, 512, kBertIds},
    {"bert-mini", "BERT mini, uncased", 256, 4, 4, 4, 64, 1024, 30522, 512, kBertIds},
    {"bert-small", "BERT small, uncased", 512, 4, 8, 8, 64, 2048, 30522, 512, kBertIds},
    {"bert-medium", "BERT medium, uncased", 512, 8, 8, 8, 64, 2048, 30522, 512, kBertIds},
    {"bert-base", "BERT base, uncased", 768, 12, 12, 12, 64, 3072, 30522, 512, kBertIds},
    {"bert-large", "BERT large, uncased", 1024, 24, 16, 16, 64, 4096, 30522, 512, kBertIds},
    {"bert-base-cased", "BERT base, cased", 768, 12, 12, 12, 64, 3072, 28996, 512, kBertIds},
    {"bert-large-cased", "BERT large, cased", 1024, 24, 16, 16, 64, 4096, 28996, 512, kBertIds},
};

constexpr const char* kT5Tied = R"("decoder_start_token_id":0)";
constexpr const char* kT5Gated =
    R"("decoder_start_token_id":0,"tie_word_embeddings":false,"feed_forward_proj":"gated-gelu")";
constexpr Row kT5Rows[] = {
    {"t5-small", "T5 small", 512, 6, 8, 8, 64, 2048, 32128, 512, kT5Tied},
    {"t5-base", "T5 base", 768, 12, 12, 12, 64, 3072, 32128, 512, kT5Tied},
    {"t5-large", "T5 large", 1024, 24, 16, 16, 64, 4096, 32128, 512, kT5Tied},
    {"t5-3b", "T5 3B", 1024, 24, 32, 32, 128, 16384, 32128, 512, kT5Tied},
    {"t5-11b", "T5 11B", 1024, 24, 128, 128, 128, 65536, 32128, 512, kT5Tied},
    {"t5-v1.1-small", "T5 1.1 small", 512, 8, 6, 6, 64, 1024, 32128, 512, kT5Gated},
    {"t5-v1.1-base", "T5 1.1 base", 768, 12, 12, 12, 64, 2048, 32128, 512, kT5Gated},
    {"t5-v1.1-large", "T5 1.1 large", 1024, 24, 16, 16, 64, 2816, 32128, 512, kT5Gated},
    {"t5-v1.1-xl", "T5 1.1 XL", 2048, 24, 32, 32, 64, 5120, 32128, 512, kT5Gated},
    {"t5-v1.1-xxl", "T5 1.1 XXL", 4096, 24, 64, 64, 64, 10240, 32128, 512, kT5Gated},
};

std::vector<Preset> make_presets() {
  std::vector<Preset> all;
  const auto add = [&](const Family& family, std::span<const Row> rows) {
    for (const Row& row : rows) all.push_back({row.name, row.note, config_of(family, row)});
  };
  add(kLlama, kLlamaRows);
  add(kGpt2, kGpt2Rows);
  add(kGptNeoX, kNeoXRows);
  add(kMistral, kMistralRows);
  add(kQwen2, kQwen2Rows);
  add(kQwen3, kQwen3Rows);
  add(kOlmo, kOlmoRows);
  add(kOlmo2, kOlmo2Rows);
  add(kGemma2, kGemma2Rows);
  add(kGemma3, kGemma3Rows);
  add(kPhi3, kPhi3Rows);
  add(kBert, kBertRows);
  add(kT5, kT5Rows);
  return all;
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = make_presets();
  return all;
}

ModelConfig smallest_preset(const Family& family) {
  const Preset* smallest = nullptr;
  for (const Preset& entry : presets()) {
    if (entry.config.family != &family) continue;
    const auto size = [](const Preset& one) {
      return one.config.layers * one.config.hidden_size * one.config.hidden_size;
    };
    if (smallest == nullptr || size(entry) < size(*smallest)) smallest = &entry;
  }
  STRATA_CHECK(smallest != nullptr, "family {} has no preset", family.name);
  return smallest->config;
}

std::string_view preset_for_machine(int cores, int64_t memory_bytes) {
  struct Choice {
    std::string_view name;
    int cores;
  };
  for (const Choice& choice : {Choice{"gpt2-124m", 32}, Choice{"llama3-29m", 4}}) {
    const int64_t state = 16 * parameter_count(preset(choice.name));
    if (cores >= choice.cores && state <= memory_bytes / 4) return choice.name;
  }
  return "llama3-5m";
}

ModelConfig preset(std::string_view name) {
  for (const Preset& entry : presets()) {
    if (entry.name == name) return entry.config;
  }
  std::vector<std::string> names;
  for (const Preset& entry : presets()) names.emplace_back(entry.name);
  const auto near = nearest_name(name, names);
  throw ConfigError("[model.preset] \"{}\" is not known{}; strata presets lists all {}", name,
                    near ? ", did you mean \"" + *near + "\"?" : "", names.size());
}

}  // namespace strata::models
