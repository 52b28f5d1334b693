// strata branch
#include "base/json.h"
#include "base/log.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "library/branch.h"

namespace strata::cli {

int run_branch(const BranchOptions& options) {
  const library::Branch branch = library::make_branch(options.source, options.target, options.sets);
  if (options.json) {
    auto changes = nlohmann::ordered_json::array();
    for (const config::Change& change : branch.changes)
      changes.push_back({{"key", change.key}, {"before", change.before}, {"after", change.after}});
    print_out("{}\n", dump_json(nlohmann::ordered_json{{"folder", options.target.string()},
                                                       {"step", branch.step},
                                                       {"checkpoint", branch.checkpoint.string()},
                                                       {"linked", branch.linked},
                                                       {"changes", changes},
                                                       {"command", branch.command}}));
    return 0;
  }
  for (const config::Change& change : branch.changes) {
    log_info("changed: {} = {} → {}", change.key, change.before.empty() ? "unset" : change.before,
             change.after.empty() ? "unset" : change.after);
  }
  log_info("{} begins at step {} of {}; to train it:", options.target.string(), branch.step, options.source);
  print_out("{}\n", branch.command);
  return 0;
}

void add_branch(Verb root) {
  auto options = std::make_shared<BranchOptions>();
  auto target = std::make_shared<std::string>();
  Verb verb = root.verb("branch", "Start a new run from a checkpoint of another one, with other settings",
                        "strata branch runs/my@200 runs/slower --set optimizer.lr=5e-4");
  verb.option("RUN@STEP", options->source,
              "A run's folder and the step of a checkpoint, or RUN@latest, RUN@best")
      .required();
  verb.option("NEW", *target, "The new run's folder").required();
  verb.sets(options->sets).suggest(configuration_keys());
  verb.json(options->json);
  verb.action([options, target] {
    options->target = *target;
    return run_branch(*options);
  });
}

}  // namespace strata::cli
