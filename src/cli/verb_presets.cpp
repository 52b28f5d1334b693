// strata presets
#include "cli/options.h"
#include "train/commands.h"

namespace strata::cli {

void add_presets(CLI::App& root, Action& action) {
  auto options = std::make_shared<train::PresetsOptions>();
  CLI::App* verb =
      add_verb(root, "presets", "The known models with size and memory", "strata presets llama3-29m");
  verb->add_option("NAME", options->name, "Only this one, in full");
  add_json(*verb, options->json);
  verb->callback([&action, options] { action = [options] { return train::run_presets(*options); }; });
}

}  // namespace strata::cli
