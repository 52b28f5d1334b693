// strata train
#include "cli/options.h"
#include "train/commands.h"

namespace strata::cli {

void add_train(CLI::App& root, Action& action) {
  auto options = std::make_shared<train::TrainOptions>();
  auto resume = std::make_shared<std::string>("auto");
  CLI::App* verb = add_verb(root, "train", "Train a model; the same command goes on where a run was",
                            "strata train RUN.toml --set training.steps=2000");
  verb->add_option("RUN.toml", options->inputs, "A configuration, or texts to train on without one")
      ->required();
  add_sets(*verb, options->sets);
  verb->add_option("--resume", *resume,
                   "auto: go on where the run's folder stands; never: refuse a folder that holds a run; DIR: "
                   "from that "
                   "checkpoint")
      ->type_name("auto|never|DIR");
  verb->add_flag("--accept-changes", options->accept_changes, "Resume although keys of the training changed");
  verb->add_flag("--dry-run", options->dry_run, "Check configuration, inputs, disk and plan, then stop");
  add_json(*verb, options->json);
  verb->callback([&action, options, resume] {
    options->resume = *resume == "auto"    ? train::ResumeMode::kAuto
                      : *resume == "never" ? train::ResumeMode::kNever
                                           : train::ResumeMode::kFrom;
    if (options->resume == train::ResumeMode::kFrom) options->resume_from = *resume;
    action = [options] { return train::run_training(*options); };
  });
}

}  // namespace strata::cli
