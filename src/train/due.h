// When something periodic is due: evaluations, checkpoints.
#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace strata::train {

// Whether an interval says that something is due, counting from the last time it happened.
class Due {
 public:
  Due(const config::Interval& interval, int64_t step);

  // After this step, which brought the run from `tokens_before` to `tokens`.
  bool at(int64_t step, int64_t tokens_before, int64_t tokens) const;
  // It happened and took so long: an "auto" interval spends at most 1 % of the time on it.
  void done(int64_t step, double seconds);
  int64_t last_step() const { return last_step_; }

 private:
  config::Interval interval_;
  int64_t last_step_;
  double last_time_;
  double cost_ = 0;
};

}  // namespace strata::train
