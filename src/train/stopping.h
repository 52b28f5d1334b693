// Stopping a run before its last step: by request or by its time limit, agreed by all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "train/rank_report.h"
#include "train/run_inputs.h"
#include "train/trainer.h"

namespace strata::training {

// Decides whether the run stops. A rank's request takes effect once all ranks know it: through the step
// report, or, after an evaluation, through ask_all(). All results are the same on all ranks. Used by one
// thread.
class Stopping {
 public:
  // `stop` must outlive it. The time limit, run.max_time or the scheduler's, starts here.
  Stopping(const std::function<bool()>& stop, const RunInputs& inputs);

  // Adds this rank's request to its step report.
  void ask(RankReport& mine) const;
  void hear(const std::vector<RankReport>& all);
  // Collective: whether any rank has been asked to stop by now.
  bool ask_all();

  // How the run ends after this step; nullopt: it continues.
  std::optional<RunEnd> end() const;

 private:
  const std::function<bool()>& stop_;
  const program::Ranks& ranks_;
  double end_time_;  // in monotonic_seconds(); infinite without a limit
  bool asked_ = false, out_of_time_ = false;
};

// The text printed when a signal ends this process by force: the step from which the same command resumes.
class StopText {
 public:
  // `folder`: contains the checkpoints. Silent until start().
  explicit StopText(Path folder) : folder_(std::move(folder)) {}

  // `stands_in_for`: see set_stop_text() of base/signals.h.
  void start(int64_t stands_in_for) { stands_in_for_ = stands_in_for; }
  // 0: nothing is saved yet. Called by one thread at a time.
  void set(int64_t saved_step) const;
  void clear() const;

 private:
  Path folder_;
  std::optional<int64_t> stands_in_for_;
};

}  // namespace strata::training
