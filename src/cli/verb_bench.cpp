// strata bench
#include "cli/verbs.h"
#include "train/commands.h"

namespace strata::cli {

void add_bench(Verb root) {
  auto options = std::make_shared<train::BenchOptions>();
  Verb verb = root.verb("bench", "The built-in benchmarks, as ratios to this machine's measured limits",
                        "strata bench step --set model.preset=llama3-29m --set training.micro_batch_size=8");
  verb.option("NAME", options->names, "Only these; left out: all");
  verb.flag("--list", options->list, "Name them and stop");
  verb.sets(options->sets);
  verb.json(options->json);
  verb.action([options] { return train::run_bench(*options); });
}

}  // namespace strata::cli
