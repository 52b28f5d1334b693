// Delayed scaling: the scale of a step follows from the greatest magnitudes of the steps before (Transformer Engine's
// DelayedScaling with amax_compute_algo "max" and margin 0; Micikevicius et al. 2022, section 3.1).
#pragma once

#include <cstdint>

#include "quantize/formats.h"

namespace strata::quantize {

// Steps that the history covers.
inline constexpr int64_t kDelayedHistory = 1024;

// State of one tensor, plain numbers of a checkpoint.
struct DelayedState {
  float*
      history;  // [kDelayedHistory]; 0: nothing seen. The first is where a step puts its greatest magnitude
  float* in_force;  // the greatest magnitude that ScaleRule::delayed() takes for the next step
};

// No history; scale 1 until a step has been seen.
void begin_delayed(Format format, const DelayedState& state);

// After a step: `greatest` is that of the step's tensor on all ranks. The one in force becomes the greatest of the
// history, unless that is zero, infinite or NaN; then the history moves on by one.
void finish_delayed_step(const DelayedState& state, float greatest);

}  // namespace strata::quantize
