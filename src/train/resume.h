// Starts training in a folder: from a checkpoint, from a model's weights, or from scratch.
#pragma once

#include <optional>
#include <string>

#include "train/copies.h"
#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/run_store.h"

namespace strata::training {

struct Resumed {
  TrainingState state;
  bool from_elsewhere = false;           // from a checkpoint that the user named
  bool from_copies = false;              // from copies in memory
  std::optional<config::Change> change;  // of the training tokens, accepted by the user
};

// Fills weights and optimizer states: from the checkpoint that `resume` names, else from copies in memory that
// are as new as the newest one in the run's folder, else from that, else with the model's initial weights.
// `may_use_copies`: whether the run's settings are those that the copies were made with. All ranks call it. ConfigError if the checkpoint
// has another seed, another tokenizer or, without `accept_changes`, other training tokens; DataError and
// WorldError from RunStore.
Resumed resume_run(const RunInputs& inputs, RunStore& store, program::Executor& executor, Copies& copies,
                   const std::string& resume, bool accept_changes, bool may_use_copies);

// The model's initial weights.
void start_weights(const RunInputs& inputs, program::Executor& executor);

// Logs where the order of samples begins and how the epochs in flight are completed.
void log_order(const data::SampleSource& samples);

}  // namespace strata::training
