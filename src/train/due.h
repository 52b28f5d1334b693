// When something periodic is due: evaluations, checkpoints.
#pragma once

#include <cstdint>

#include "train/run_position.h"

namespace strata::train {

// Whether an interval says that something is due, counting from the last time it happened.
class Due {
 public:
  explicit Due(const config::Interval& interval);

  // After the step that follows `position`.
  bool after_next(const RunPosition& position) const;
  void done();
  // So much of the run's time it costs: an "auto" interval spends at most 1 % on it.
  void costs(double seconds) { cost_ = seconds; }

 private:
  config::Interval interval_;
  double last_time_;
  double cost_ = 0;
};

}  // namespace strata::train
