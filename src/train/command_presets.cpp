// strata presets
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "models/model.h"
#include "train/commands.h"

namespace strata::train {
namespace {

// Weights, gradients and two moments in fp32; encodings and activations come on top.
double training_state_bytes(double parameters) {
  return 16 * parameters;
}

}  // namespace

int run_presets(const PresetsOptions& options) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (!options.json) {
    fmt::print("{:<12} {:>10} {:>6} {:>6} {:>6} {:>8} {:>6} {:>8}  {}\n", "preset", "parameters", "layers",
               "width", "heads", "kv heads", "ffn", "vocab", "weights + optimizer");
  }
  if (!options.name.empty()) models::preset(options.name);  // an unknown name is an error with the known ones
  for (const models::Preset& preset : models::presets()) {
    if (!options.name.empty() && preset.name != options.name) continue;
    const models::ModelConfig& c = preset.config;
    const auto parameters = models::parameter_count(c);
    const double bytes = training_state_bytes(static_cast<double>(parameters));
    if (options.json) {
      list.push_back({{"name", preset.name},
                      {"note", preset.note},
                      {"parameters", parameters},
                      {"training_state_bytes", bytes},
                      {"config", nlohmann::ordered_json::parse(c.family->write(c, DType::kF32))}});
      continue;
    }
    fmt::print("{:<12} {:>10} {:>6} {:>6} {:>6} {:>8} {:>6} {:>8}  {:<8} {}\n", preset.name,
               human_count(static_cast<double>(parameters)), c.layers, c.width, c.heads, c.kv_heads, c.ffn,
               c.vocab_size, human_bytes(bytes), preset.note);
  }
  if (options.json) fmt::print("{}\n", nlohmann::ordered_json{{"presets", list}}.dump());
  return 0;
}

}  // namespace strata::train
