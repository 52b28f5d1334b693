// Steering of a running run: strata stop, save and set.
//
// Rank 0 takes requests between two steps and checks them; the accepted ones reach all ranks as a text, and
// all apply them there, so that they take effect at the same step on all.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/steerable.h"
#include "program/executor.h"
#include "train/control.h"
#include "train/journal.h"
#include "train/reporter.h"
#include "train/run_inputs.h"
#include "train/run_position.h"

namespace strata::training {

// A key that requests changed, and a setting as it was given.
struct Steered {
  config::Change change;
  std::string by;
};
struct SteeredSetting {
  config::NewSetting setting;
  std::string by;
};

// The effects of accepted requests, the same on all ranks.
struct SteeringEffects {
  bool stop = false, save = false;
  std::vector<SteeredSetting> settings;  // in the order of the requests, for the run's journal
  std::vector<Steered> changes;          // made to the configuration
};

// Applies settings of a run's journal to the configuration that `position` was made from; the position follows
// them. Returns whether one has changed.
bool apply_settings(const std::vector<Effect>& settings, config::RunConfig& config, RunPosition& position);

// Applies the journal's entries for the step after `position`: settings, the batch, a jump. Returns whether a
// setting has changed.
bool apply_journal(const Journal& journal, config::RunConfig& config, RunPosition& position);

// All ranks construct one for the run's own configuration, which it changes. `executor` must outlive it.
// Used by one thread.
class Steering {
 public:
  // `config`: what inputs.config refers to.
  Steering(FileSystem& files, const RunInputs& inputs, const program::Executor& executor,
           config::RunConfig& config);

  // Whether requests have arrived; false on ranks other than the first.
  bool is_asked() { return folder_ && folder_->changed(); }

  // On rank 0: takes the requests that have arrived after the step at `position`, and answers those that it
  // refuses. `ends`: the run ends here, so that no setting can take effect. Returns the accepted ones, for
  // all ranks. Elsewhere: an empty text.
  std::string poll(const RunPosition& position, bool ends);
  // On all ranks: applies the text that rank 0 returned.
  SteeringEffects apply(std::string_view text);

  // Once the effects of apply() are in the run's journal: reports the changes, which begin with step `step`,
  // and answers `set`.
  void confirm(const SteeringEffects& effects, int64_t step, Reporter& reporter);
  // The newest checkpoint is complete and durable: answers the `save`s that asked for it and, at the run's
  // end, `stop`.
  void saved(bool is_end);

 private:
  // Checks one request against the configuration with the settings of those before it.
  void check(const Request& request, const RunPosition& position, bool ends, config::RunConfig& config) const;
  // Why this run cannot take valid settings; empty: it can.
  std::string obstacle(const config::RunConfig& after, const RunPosition& position) const;
  void apply(const std::vector<config::NewSetting>& settings, const std::string& by,
             SteeringEffects& effects);

  struct Waiting {
    Request request;
    int64_t step;
  };

  RunInputs inputs_;
  const program::Executor& executor_;
  config::RunConfig& config_;
  const bool evaluates_, has_snapshots_;  // the run was started with evaluations, with snapshots
  std::optional<ControlFolder> folder_;   // on rank 0
  std::vector<Request> applied_;          // to be confirmed
  std::vector<Waiting> waiting_;          // for the checkpoint that they asked for
};

}  // namespace strata::training
