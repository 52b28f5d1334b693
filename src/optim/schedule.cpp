#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace strata::optim {
namespace {

// 1 at p = 0, `floor` at p = 1.
double decayed(DecayShape shape, double p, double floor) {
  double share = 1.0 - p;
  if (shape == DecayShape::kCosine) share = 0.5 * (1.0 + std::cos(std::numbers::pi * p));
  if (shape == DecayShape::kSqrt) share = 1.0 - std::sqrt(p);
  return floor + (1.0 - floor) * share;
}

double progress(int64_t step, int64_t from, int64_t to) {
  if (step >= to) return 1.0;
  return std::max(0.0, static_cast<double>(step - from) / static_cast<double>(to - from));
}

}  // namespace

int64_t wsd_decay_steps(const ScheduleConfig& schedule) {
  const auto wanted =
      static_cast<int64_t>(std::llround(schedule.decay_ratio * static_cast<double>(schedule.steps)));
  return std::clamp<int64_t>(wanted, 0, std::max<int64_t>(0, schedule.steps - schedule.warmup_steps));
}

double learning_rate(const ScheduleConfig& schedule, int64_t step) {
  STRATA_CHECK(step >= 1, "[schedule] step {}: steps count from 1", step);
  const int64_t warmup = schedule.warmup_steps;
  if (step <= warmup) return schedule.lr * static_cast<double>(step) / static_cast<double>(warmup);
  const double floor = schedule.min_lr_ratio;
  switch (schedule.kind) {
    case ScheduleKind::kCosine:
      return schedule.lr * decayed(DecayShape::kCosine, progress(step, warmup, schedule.steps), floor);
    case ScheduleKind::kLinear:
      return schedule.lr * decayed(DecayShape::kLinear, progress(step, warmup, schedule.steps), floor);
    case ScheduleKind::kConstant:
      return schedule.lr;
    case ScheduleKind::kInverseSqrt: {
      const auto scale = static_cast<double>(warmup > 0 ? warmup : 10'000);
      return schedule.lr * std::max(floor, std::sqrt(scale / (static_cast<double>(step - warmup) + scale)));
    }
    case ScheduleKind::kWsd: {
      const int64_t decay_steps = wsd_decay_steps(schedule);
      const int64_t begin = schedule.steps - decay_steps;
      if (decay_steps == 0 || step <= begin) return schedule.lr;
      return schedule.lr * decayed(schedule.decay, progress(step, begin, schedule.steps), floor);
    }
  }
  return schedule.lr;
}

}  // namespace strata::optim
