// strata presets
#include "cli/verbs.h"
#include "train/commands.h"

namespace strata::cli {

void add_presets(Verb root) {
  auto options = std::make_shared<train::PresetsOptions>();
  Verb verb = root.verb("presets", "The known models with size and memory", "strata presets llama3-29m");
  verb.option("NAME", options->name, "Only this one, in full");
  verb.json(options->json);
  verb.action([options] { return train::run_presets(*options); });
}

}  // namespace strata::cli
