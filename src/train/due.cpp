#include "train/due.h"

#include <utility>

#include "base/clock.h"

namespace strata::training {

Due::Due(const config::Interval& interval, std::function<double(double)> auto_seconds)
    : interval_(interval), auto_seconds_(std::move(auto_seconds)), last_time_(monotonic_seconds()) {}

bool Due::after_next(const RunPosition& position) const {
  switch (interval_.kind) {
    case config::Interval::Kind::kNever:
      return false;
    case config::Interval::Kind::kSteps:
      return (position.step() + 1) % interval_.count == 0;
    case config::Interval::Kind::kTokens:
      return (position.tokens() + position.next_tokens()) / interval_.count >
             position.tokens() / interval_.count;
    case config::Interval::Kind::kSeconds:
      return monotonic_seconds() - last_time_ >= interval_.seconds;
    case config::Interval::Kind::kAuto:
      return monotonic_seconds() - last_time_ >= auto_seconds_(cost_);
  }
  return false;
}

void Due::done() {
  last_time_ = monotonic_seconds();
}

}  // namespace strata::training
