// Decides when periodic work is due: evaluations, checkpoints.
#pragma once

#include <cstdint>
#include <functional>

#include "train/run_position.h"

namespace strata::training {

// Applies an interval, measured from the last time the work was done.
class Due {
 public:
  // `auto_seconds`: between two executions of an "auto" interval, from the seconds that one costs.
  explicit Due(const config::Interval& interval,
               std::function<double(double)> auto_seconds = config::auto_checkpoint_seconds);

  // Whether the work is due after the step that follows `position`.
  bool after_next(const RunPosition& position) const;
  void done();
  // Another interval, measured from the same time.
  void set_interval(const config::Interval& interval) { interval_ = interval; }
  // `seconds`: the run's time that one execution costs; an "auto" interval follows it.
  void costs(double seconds) { cost_ = seconds; }

 private:
  config::Interval interval_;
  std::function<double(double)> auto_seconds_;
  double last_time_;
  double cost_ = 0;
};

}  // namespace strata::training
