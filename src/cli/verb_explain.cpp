// strata explain
#include "cli/options.h"
#include "train/commands.h"

namespace strata::cli {

void add_explain(CLI::App& root, Action& action) {
  auto options = std::make_shared<train::ExplainOptions>();
  CLI::App* verb =
      add_verb(root, "explain", "Print the step program, memory plan and expected time without running",
               "strata explain RUN.toml --set training.micro_batch_size=4");
  verb->add_option("RUN.toml", options->inputs, "A configuration, or texts to train on without one")
      ->required();
  add_sets(*verb, options->sets);
  add_json(*verb, options->json);
  verb->callback([&action, options] { action = [options] { return train::run_explain(*options); }; });
}

}  // namespace strata::cli
