// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>

namespace strata::optim {

enum class ScheduleKind { kCosine, kWsd, kLinear, kConstant, kInverseSqrt };
enum class DecayShape { kLinear, kSqrt, kCosine };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  double lr = 1e-3;           // the peak
  int64_t warmup_steps = 0;   // w
  int64_t steps = 1;          // N, the horizon
  double min_lr_ratio = 0.0;  // m: the floor, as a share of the peak
  double decay_ratio = 0.1;   // wsd: the share of N that decays at the end
  DecayShape decay = DecayShape::kLinear;
};

// The learning rate of step s = 1, 2, …; s beyond N stays at the end of the curve.
//   s ≤ w                lr·s/w, for every kind
//   cosine               lr·(m + (1−m)·(1 + cos πp)/2),  p = (s−w)/(N−w)
//   linear               lr·(m + (1−m)·(1−p))
//   constant             lr
//   inverse_sqrt         lr·max(m, √(t/(s−w+t))),  t = w, or 10,000 without warm-up (as transformers does)
//   wsd                  lr until N − wsd_decay_steps(c), then over q = 0…1 of the rest:
//                        linear lr·(m + (1−m)·(1−q)), cosine as above with q, sqrt lr·(m + (1−m)·(1−√q))
double learning_rate(const ScheduleConfig& schedule, int64_t step);

// The length of the decay of wsd: decay_ratio of the horizon, rounded to the nearest, at most what follows
// the warm-up.
int64_t wsd_decay_steps(const ScheduleConfig& schedule);

}  // namespace strata::optim
