#include "train/due.h"

#include "base/clock.h"

namespace strata::train {

Due::Due(const Interval& interval, int64_t step, int64_t step_tokens)
    : interval_(interval), step_tokens_(step_tokens), last_step_(step), last_time_(monotonic_seconds()) {}

bool Due::at(int64_t step) const {
  switch (interval_.kind) {
    case Interval::Kind::kNever:
      return false;
    case Interval::Kind::kSteps:
      return step % interval_.count == 0;
    case Interval::Kind::kTokens:
      return step * step_tokens_ / interval_.count > (step - 1) * step_tokens_ / interval_.count;
    case Interval::Kind::kSeconds:
      return monotonic_seconds() - last_time_ >= interval_.seconds;
    case Interval::Kind::kAuto:
      return monotonic_seconds() - last_time_ >= auto_checkpoint_seconds(cost_);
  }
  return false;
}

void Due::done(int64_t step, double seconds) {
  last_step_ = step;
  last_time_ = monotonic_seconds();
  cost_ = seconds;
}

}  // namespace strata::train
