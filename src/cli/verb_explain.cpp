// strata explain
#include "cli/verbs.h"
#include "train/commands.h"

namespace strata::cli {

void add_explain(Verb root) {
  auto options = std::make_shared<train::ExplainOptions>();
  Verb verb = root.verb("explain", "Print the step program, memory plan and expected time without running",
                        "strata explain RUN.toml --set training.micro_batch_size=4");
  verb.option("RUN.toml", options->inputs, "A configuration, or texts to train on without one").required();
  verb.sets(options->sets);
  verb.json(options->json);
  verb.action([options] { return train::run_explain(*options); });
}

}  // namespace strata::cli
