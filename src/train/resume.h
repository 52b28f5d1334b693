// The beginning of training in a folder: from a checkpoint, from a model's weights, or from scratch.
#pragma once

#include <optional>
#include <string>

#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/run_store.h"

namespace strata::train {

struct Resumed {
  TrainingState state;
  bool from_elsewhere = false;           // from a checkpoint that the user named
  std::optional<config::Change> change;  // of the training tokens, which the user has accepted
};

// Fills weights and optimizer states: from the checkpoint that `resume` names, else from the newest one of
// the run's folder, else with the model's first weights. All ranks call it. ConfigError for a checkpoint of
// another seed, tokenizer or, without `accept_changes`, other training tokens; DataError and WorldError as
// RunStore throws them.
Resumed resume_run(const RunInputs& inputs, RunStore& store, program::Executor& executor,
                   const std::string& resume, bool accept_changes);

// Logs where the order of samples begins and what is left of the epochs in flight.
void log_order(const data::SampleSource& samples);

}  // namespace strata::train
