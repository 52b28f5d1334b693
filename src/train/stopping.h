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

namespace strata::train {

// Whether the run is to stop. A rank's own request counts once all ranks know of it: through the news of a
// step, or, after an evaluation, by asking them. All answers are the same on all ranks. Used by one thread.
class Stopping {
 public:
  // `stop` must outlive it. The time limit counts from here: run.max_time, or what the scheduler left.
  Stopping(const std::function<bool()>& stop, const RunInputs& inputs);

  // Adds this rank's request to the news that it is about to send.
  void ask(RankReport& mine) const;
  void hear(const std::vector<RankReport>& all);
  // Asks all ranks, which call it at the same place. Whether one of them has been asked to stop by now.
  bool ask_all();

  // How the run ends with this step; nothing: it continues.
  std::optional<RunEnd> end() const;

 private:
  const std::function<bool()>& stop_;
  const program::Ranks& ranks_;
  double end_time_;  // of monotonic_seconds(); infinite without a limit
  bool asked_ = false, out_of_time_ = false;
};

// The text that a signal prints when it ends this process by force: the step from which the same command
// continues.
class StopText {
 public:
  // `folder`: of the checkpoints. Silent until start().
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

}  // namespace strata::train
