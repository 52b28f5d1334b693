// strata train
#include "cli/verbs.h"
#include "train/commands.h"

namespace strata::cli {

void add_train(Verb root) {
  auto options = std::make_shared<train::TrainOptions>();
  auto resume = std::make_shared<std::string>("auto");
  Verb verb = root.verb("train", "Train a model; the same command goes on where a run was",
                        "strata train RUN.toml --set training.steps=2000");
  verb.option("RUN.toml", options->inputs,
              "A configuration; or texts, or folders of data builds, to train on without one")
      .required();
  verb.sets(options->sets);
  verb.option("--resume", *resume,
              "auto: go on where the run's folder stands; never: refuse a folder that holds a run; DIR: "
              "from that "
              "checkpoint")
      .type_name("auto|never|DIR");
  verb.option("--ranks", options->ranks, "Ranks that share the work; more than 1: not yet in this version")
      .positive()
      .type_name("N");
  verb.flag("--accept-changes", options->accept_changes, "Resume although keys of the training changed");
  verb.flag("--dry-run", options->dry_run, "Check configuration, inputs, disk and plan, then stop");
  verb.json(options->json);
  verb.action([options, resume] {
    options->resume = *resume == "auto"    ? train::ResumeMode::kAuto
                      : *resume == "never" ? train::ResumeMode::kNever
                                           : train::ResumeMode::kFrom;
    if (options->resume == train::ResumeMode::kFrom) options->resume_from = *resume;
    return train::run_training(*options);
  });
}

}  // namespace strata::cli
