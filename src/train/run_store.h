// A run's folder: its lock, its stored configuration, its checkpoints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "data/samples/position.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "program/executor.h"

namespace strata::train {

// What resumes a run besides weights and the optimizers' states. Random numbers are counter-based and the
// data order is a function of the sample's number, so the position is all the state there is. Nothing of it
// is computed from the step: batch and sequence length may have changed on the way.
struct TrainingState {
  int64_t step = 0;     // steps that are done; 0: imported weights, nothing below is set
  int64_t updates = 0;  // device state: a step without a valid target makes none
  int64_t samples = 0;  // training samples that they took
  int64_t tokens = 0;
  std::optional<int64_t> next_sample;  // the global one; none: an older checkpoint, whose batch never changed
  std::string order;                   // SampleSource::fingerprint of the order that holds since `origin`
  data::DataOrigin origin;
  std::vector<data::SourcePosition> sources;  // where each stands at next_sample
  uint64_t seed = 0;
  std::string tokenizer;  // hash; empty: none
  std::string data;       // fingerprint of the training tokens
};
std::string to_json(const TrainingState& state);
TrainingState training_state_from_json(const std::string& text, const std::string& where);

// Of a run's folder, without locking it: the tokenizer.json of the newest checkpoint that has a sound one.
std::optional<Path> stored_tokenizer(const Path& run);

// What --resume names: a checkpoint, or the newest of a run folder. ConfigError where there is none.
Path named_checkpoint(const std::string& checkpoint);

class RunStore {
 public:
  // Makes the folder where it is missing and locks it. ConfigError when another run holds it. Of several
  // ranks one is the owner; the others only read.
  enum class Role { kOwner, kReader };
  RunStore(FileSystem& files, const Path& folder, Role role = Role::kOwner);

  const Path& folder() const { return folder_; }
  Path checkpoints() const { return folder_ / "checkpoints"; }
  bool holds_run() const;
  bool holds_checkpoints() const;
  std::optional<config::RunConfig> stored_config() const { return config::read_stored_config(folder_); }
  void store_config(const config::RunConfig& config, const std::string& machine);

  // The state that a resume is likely to begin with, from its checkpoint's state.json alone: of `resume` as
  // the user gave it, or of the newest checkpoint that can be read.
  std::optional<TrainingState> likely_state(const std::string& resume) const;

  // Fills weights and states, the count of updates among them, from the newest good checkpoint and warns of
  // damaged ones; nothing when there is none.
  std::optional<TrainingState> load_newest(const models::ModelConfig& model,
                                           const program::Executor& executor) const;
  // The same from a checkpoint, or the newest of a run folder.
  TrainingState load(const std::string& checkpoint, const models::ModelConfig& model,
                     const program::Executor& executor) const;

  std::optional<Path> stored_tokenizer() const { return train::stored_tokenizer(folder_); }
  // Another corpus was accepted: until the next checkpoint has its fingerprint, it stands here.
  void accept_data(const std::string& fingerprint);
  bool accepted_data(const std::string& fingerprint) const;
  // Renames checkpoints later than `step`, so that a run that went back does not resume from them.
  void set_aside_after(int64_t step);

  struct Save {
    const models::ModelConfig& model;
    const program::Executor& executor;
    const data::Tokenizer* tokenizer;
    TrainingState state;
    checkpoint::Health health;
    checkpoint::RetentionPolicy retention;
  };
  // What a checkpoint holds. It refers to the executor, whose weights and states are read while it is saved.
  checkpoint::CheckpointContent content_of(const Save& save) const;
  // Saves while all ranks wait; returns the bytes written.
  uint64_t save(const Save& save);
  // The model to hand on, in bf16, with a card that says how it was made.
  void write_final(const Save& save);

 private:
  FileSystem& files_;
  Path folder_;
  std::optional<FileLock> lock_;
};

}  // namespace strata::train
