// The saves of a run, each beside the steps that follow it.
#pragma once

#include <functional>
#include <memory>

#include "checkpoint/background_save.h"
#include "program/executor.h"
#include "train/due.h"
#include "train/reporter.h"
#include "train/run_position.h"
#include "train/run_store.h"

namespace strata::train {

// All ranks make one, and begin and end its saves, at the same places of the run. Errors of a save are thrown
// where it is ended, on all of them.
class Saves {
 public:
  // `saved` is called with the step of each checkpoint that has become whole, on the thread that saves.
  Saves(FileSystem& files, RunStore& store, const program::Executor& executor,
        const config::Interval& interval, Reporter& reporter, std::function<void(int64_t)> saved);

  // Whether the interval asks for one after the next step; an "auto" interval by what saves have cost.
  bool is_due(const RunPosition& position) const { return due_.after_next(position); }
  // Ends the one before.
  void begin(const RunStore::Save& save);
  // Waits until the checkpoint is whole and durable, and tells of it; nothing where none was begun.
  void end();
  // Returns once weights and states may change.
  void before_update();
  // Whether end() would wait on this rank.
  bool running() const { return saving_.running(); }

  // Seconds that training has waited for saves since this was asked last.
  double take_waited();

 private:
  // Counts what `work` takes as waited.
  template <typename Work>
  auto waiting(const Work& work);

  RunStore& store_;
  Reporter& reporter_;
  const std::function<void(int64_t)> saved_;
  const std::unique_ptr<comm::Communicator> group_;
  checkpoint::BackgroundSave saving_;
  int64_t step_ = 0;    // of the newest save
  double held_up_ = 0;  // seconds that training waited for it
  double untold_ = 0;   // of take_waited()
  // What it costs is, at most, what training waited for the newest save that has ended, and the processor
  // time that this took beside it.
  Due due_;
};

}  // namespace strata::train
