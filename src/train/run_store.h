// A run's folder: its lock, its stored configuration, its checkpoints.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "data/samples/position.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "program/executor.h"
#include "train/journal.h"
#include "train/noise_scale.h"

namespace strata::training {

// The state of a run besides weights and optimizer states. Random numbers are counter-based and the data
// order is a function of the sample's number, so the position is all the state there is. It is not computed
// from the step: batch size and sequence length may have changed during the run.
struct TrainingState {
  int64_t step = 0;     // completed steps; 0: imported weights, nothing below is set
  int64_t updates = 0;  // device state: a step without a valid target makes none
  int64_t samples = 0;  // training samples consumed
  int64_t tokens = 0;
  std::optional<int64_t> next_sample;  // global number; none: an older checkpoint, whose batch never changed
  std::string order;                   // SampleSource::fingerprint of the order in use since `origin`
  data::DataOrigin origin;
  std::vector<data::SourcePosition> sources;  // position of each at next_sample
  uint64_t seed = 0;
  std::string tokenizer;           // hash; empty: none
  std::string data;                // fingerprint of the training tokens
  optim::GuardHistory guard = {};  // device state: values for comparing the next steps
  Journal journal = {};            // everything done to the run up to here
  NoiseState noise = {};
  std::string noise_ramp = {};  // NoiseRamp::state() as text, where the batch follows the noise scale
};
std::string to_json(const TrainingState& state);
TrainingState training_state_from_json(const std::string& text, const std::string& where);

// The newest intact tokenizer.json among the checkpoints of a run's folder. Does not lock the folder.
std::optional<Path> stored_tokenizer(const Path& run);

// The checkpoint that --resume names, or the newest one in the run folder that it names. ConfigError if there
// is none.
Path named_checkpoint(const std::string& checkpoint);

class RunStore {
 public:
  // The owner creates the folder if it is missing and locks it; ConfigError if another run holds it. One rank
  // is the owner; the others only read.
  enum class Role { kOwner, kReader };
  RunStore(FileSystem& files, const Path& folder, Role role = Role::kOwner);

  const Path& folder() const { return folder_; }
  Path checkpoints() const { return folder_ / "checkpoints"; }
  bool holds_run() const;
  bool holds_checkpoints() const;
  // The step of the newest checkpoint, good or not; 0: there is none.
  int64_t newest_checkpoint() const;
  std::optional<config::RunConfig> stored_config() const { return config::read_stored_config(folder_); }
  void store_config(const config::RunConfig& config, const std::string& machine);

  // The state from which a resume will probably start, read only from state.json: that of the checkpoint that
  // the user named with `resume`, or of the newest readable one.
  std::optional<TrainingState> likely_state(const std::string& resume) const;

  // Fills weights and states, including the update count, from the newest good checkpoint of at most a step
  // and warns of damaged ones; nullopt if there is none, DataError if none is good.
  std::optional<TrainingState> load_newest(const models::ModelConfig& model,
                                           const program::Executor& executor,
                                           int64_t at_most = std::numeric_limits<int64_t>::max()) const;
  // The same, but nullopt, with a warning, if none is good.
  std::optional<TrainingState> load_at_most(int64_t step, const models::ModelConfig& model,
                                            const program::Executor& executor) const;
  // Like load_newest(), from a given checkpoint, or from the newest one in a run folder.
  TrainingState load(const std::string& checkpoint, const models::ModelConfig& model,
                     const program::Executor& executor) const;

  std::optional<Path> stored_tokenizer() const { return training::stored_tokenizer(folder_); }
  // Stores the fingerprint of a changed corpus that the user accepted, until the next checkpoint contains it.
  void accept_data(const std::string& fingerprint);
  bool accepted_data(const std::string& fingerprint) const;
  // Renames checkpoints after `step`, so that a run that went back does not resume from them.
  void set_aside_after(int64_t step);

  // Everything done to the run: the file is newer than the journal of the newest checkpoint; nullopt: none.
  std::optional<Journal> journal() const;
  void write_journal(const Journal& journal);

  struct Save {
    const models::ModelConfig& model;
    const program::Executor& executor;
    const data::Tokenizer* tokenizer;
    TrainingState state;
    checkpoint::Health health;
    checkpoint::RetentionPolicy retention;
  };
  // The content of a checkpoint. It refers to the executor, whose weights and states are read during the
  // save.
  checkpoint::CheckpointContent content_of(const Save& save) const;
  // Saves while all ranks wait; returns the bytes written.
  uint64_t save(const Save& save);
  // Writes the finished model in bf16, with a model card, to final/.
  void write_final(const Save& save);

 private:
  FileSystem& files_;
  Path folder_;
  std::optional<FileLock> lock_;
};

}  // namespace strata::training
