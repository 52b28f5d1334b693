#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/suggest.h"
#include "models/model.h"

namespace strata::models {
namespace {

// The config.json of the preset.
ModelConfig config_of(const Family& family, const PresetRow& row) {
  nlohmann::json json = parse_json<nlohmann::json>("{" + std::string(row.more) + "}");
  json["model_type"] = family.model_type;
  json["vocab_size"] = row.vocab;
  const auto set = [&](const char* key, int64_t value) {
    if (key != nullptr) json[key] = value;
  };
  set(family.size_keys.width, row.width);
  set(family.size_keys.layers, row.layers);
  set(family.size_keys.heads, row.heads);
  set(family.size_keys.kv_heads, row.kv_heads);
  set(family.size_keys.head_dim, row.head_dim);
  set(family.size_keys.ffn, row.ffn);
  set(family.size_keys.positions, row.positions);
  return family.read(dump_json(json), row.name);
}

std::vector<Preset> make_presets() {
  std::vector<Preset> all;
  for (const Family* family : families()) {
    for (const PresetRow& row : family->presets) all.push_back({row.name, row.note, config_of(*family, row)});
  }
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
  throw ConfigError("[model.preset] \"{}\" is not known{}. strata presets lists all {}", name,
                    near ? ", did you mean \"" + *near + "\"?" : "", names.size());
}

}  // namespace strata::models
