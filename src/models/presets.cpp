#include <algorithm>

#include "base/error.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/model.h"

namespace strata::models {
namespace {

struct LlamaSizes {
  int64_t width, layers, heads, kv_heads, ffn, vocab, positions;
  bool tied;
};

ModelConfig llama(const LlamaSizes& s) {
  ModelConfig config;
  config.family = &kLlama;
  config.vocab_size = s.vocab;
  config.width = s.width;
  config.layers = s.layers;
  config.heads = s.heads;
  config.kv_heads = s.kv_heads;
  config.head_dim = s.width / s.heads;
  config.ffn = s.ffn;
  config.max_positions = s.positions;
  config.tied = s.tied;
  config.rope.theta = s.vocab > 100000 ? 500000.0 : 10000.0;
  return config;
}

ModelConfig gpt2(int64_t width, int64_t layers, int64_t heads) {
  ModelConfig config;
  config.family = &kGpt2;
  config.vocab_size = 50257;
  config.width = width;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = heads;
  config.head_dim = width / heads;
  config.ffn = 4 * width;
  config.max_positions = 1024;
  config.bos_id = 50256;
  config.eos_id = 50256;
  return config;
}

// Llama 3.2 1B: 128,000 trained tokens and 256 special ones; rope scaled by 32 from 8,192 positions.
ModelConfig llama3_1b() {
  ModelConfig config = llama({2048, 16, 32, 8, 8192, 128256, 131072, true});
  config.rope.kind = ops::RopeScaling::Kind::kLlama3;
  config.rope.factor = 32;
  config.bos_id = 128000;
  config.eos_id = 128001;
  return config;
}

std::vector<Preset> make_presets() {
  return {
      {"llama3-5m", "seconds a hundred steps on a laptop: the demo and tests",
       llama({256, 4, 4, 2, 768, 4096, 1024, true})},
      {"llama3-29m", "an hour on a laptop: readable text from tens of MB",
       llama({512, 8, 8, 4, 1536, 8192, 2048, true})},
      {"llama3-60m", "overnight on a workstation", llama({640, 12, 10, 5, 1920, 16384, 2048, true})},
      {"llama3-125m", "GPT-2's size with Llama's blocks", llama({768, 12, 12, 4, 2304, 32000, 2048, true})},
      {"llama3-350m", "a day on one GPU", llama({1024, 24, 16, 8, 3072, 32000, 2048, true})},
      {"llama3-1b", "the architecture of Llama 3.2 1B", llama3_1b()},
      {"gpt2-124m", "GPT-2 small", gpt2(768, 12, 12)},
      {"gpt2-355m", "GPT-2 medium", gpt2(1024, 24, 16)},
      {"gpt2-774m", "GPT-2 large", gpt2(1280, 36, 20)},
  };
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = make_presets();
  return all;
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
  std::string known;
  for (const Preset& entry : presets()) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  throw ConfigError("[model.preset] \"{}\" is not known; known are {}", name, known);
}

}  // namespace strata::models
