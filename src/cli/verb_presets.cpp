// strata presets
#include <fmt/core.h>

#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "models/model.h"

namespace strata::cli {
namespace {

// Weights, gradients and two moments in fp32; packed weights and activations come on top.
double training_state_bytes(double parameters) {
  return 16 * parameters;
}

}  // namespace

int run_presets(const PresetsOptions& options) {
  std::vector<const models::Preset*> chosen;
  for (const models::Preset& preset : models::presets()) {
    const bool family = preset.config.family->name == options.name;
    if (options.name.empty() || family || preset.name.starts_with(options.name)) chosen.push_back(&preset);
  }
  if (chosen.empty()) models::preset(options.name);  // an error with the nearest name
  for (const models::Preset& preset : models::presets()) {
    if (preset.name == options.name) chosen = {&preset};
  }
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const models::Preset* preset : chosen) {
      const models::ModelConfig& c = preset->config;
      const auto parameters = models::parameter_count(c);
      list.push_back({{"name", preset->name},
                      {"family", c.family->name},
                      {"note", preset->note},
                      {"parameters", parameters},
                      {"active_parameters", models::active_parameter_count(c)},
                      {"training_state_bytes",
                       static_cast<int64_t>(training_state_bytes(static_cast<double>(parameters)))},
                      {"config", parse_json<nlohmann::ordered_json>(c.family->write(c, DType::kF32))}});
    }
    print_out("{}\n", dump_json(nlohmann::ordered_json{{"presets", list}}));
    return 0;
  }
  print_out("{:<18} {:>10} {:>6} {:>6} {:>6} {:>8} {:>6} {:>8}  {}\n", "preset", "parameters", "layers",
            "width", "heads", "kv heads", "ffn", "vocab", "weights + optimizer");
  for (const models::Preset* preset : chosen) {
    const models::ModelConfig& c = preset->config;
    const auto parameters = static_cast<double>(models::parameter_count(c));
    print_out("{:<18} {:>10} {:>6} {:>6} {:>6} {:>8} {:>6} {:>8}  {:<8} {}\n", preset->name,
              human_count(parameters), c.layers, c.hidden_size, c.heads, c.kv_heads, c.intermediate_size,
              c.vocab_size, human_bytes(training_state_bytes(parameters)), preset->note);
  }
  if (chosen.size() > 1) return 0;
  const models::Blocks blocks = models::blocks_of(chosen[0]->config);
  print_out("\nfamily {}: {}; {}; attention: {}; FFN: {}; {}\n", chosen[0]->config.family->name, blocks.norms,
            blocks.positions, blocks.attention, blocks.ffn, blocks.tables);
  return 0;
}

void add_presets(Verb root) {
  auto options = std::make_shared<PresetsOptions>();
  Verb verb = root.verb("presets", "List the known models with size and memory", "strata presets llama3-29m");
  verb.option("NAME", options->name, "Show only this one, in full").suggest(preset_names());
  verb.json(options->json);
  verb.action([options] { return run_presets(*options); });
}

}  // namespace strata::cli
