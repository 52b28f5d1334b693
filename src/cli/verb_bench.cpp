// strata bench
#include "cli/options.h"
#include "train/commands.h"

namespace strata::cli {

void add_bench(CLI::App& root, Action& action) {
  auto options = std::make_shared<train::BenchOptions>();
  CLI::App* verb =
      add_verb(root, "bench", "The built-in benchmarks, as ratios to this machine's measured limits",
               "strata bench step");
  verb->add_option("NAME", options->names, "Only these; left out: all");
  verb->add_flag("--list", options->list, "Name them and stop");
  add_json(*verb, options->json);
  verb->callback([&action, options] { action = [options] { return train::run_bench(*options); }; });
}

}  // namespace strata::cli
