// Saves a run in the background while training continues.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/background_save.h"
#include "program/executor.h"
#include "train/due.h"
#include "train/reporter.h"
#include "train/run_position.h"
#include "train/run_store.h"

namespace strata::training {

// Seconds between saves of an "auto" interval: Daly's, if failures of the run are known, of which this is the mean time
// between two; at least every 30 minutes. Otherwise config::auto_checkpoint_seconds().
double save_interval(double cost, std::optional<double> mean_time_between_failures);

// All ranks construct one, and begin and end its saves at the same points of the run. end() throws the errors
// of a save on all ranks.
class Saves {
 public:
  // `saved` is called on the saving thread with the step of each completed checkpoint.
  Saves(FileSystem& files, RunStore& store, const program::Executor& executor,
        const config::Interval& interval, Reporter& reporter, std::function<void(int64_t)> saved);

  // Whether the interval requests a save after the next step; "auto" depends on the cost of earlier saves.
  bool is_due(const RunPosition& position) const { return due_.after_next(position); }
  void set_interval(const config::Interval& interval) { due_.set_interval(interval); }
  // Ends the previous save first.
  void begin(const RunStore::Save& save);
  // Waits until the checkpoint is complete and durable, and reports it. Does nothing if no save was started.
  void end();
  // Waits until weights and states may change.
  void before_update();
  // Whether end() would wait on this rank.
  bool running() const { return saving_.running(); }

  // Seconds that training has waited for saves since the last call.
  double take_waited();

 private:
  // Runs `work` and adds its time to the waited seconds.
  template <typename Work>
  auto waiting(const Work& work);

  RunStore& store_;
  Reporter& reporter_;
  const std::function<void(int64_t)> saved_;
  const std::unique_ptr<comm::Communicator> group_;
  checkpoint::BackgroundSave saving_;
  int64_t step_ = 0;    // of the newest save
  double held_up_ = 0;  // seconds that training waited for it
  double waited_ = 0;   // seconds not yet returned by take_waited()
  // The cost of a save is at most the time that training waited for it, plus its processor time.
  Due due_;
};

}  // namespace strata::training
