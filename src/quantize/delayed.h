// Delayed scaling: the scale of a step follows from the greatest magnitudes of the steps before, so that a tensor is
// quantised as it is read, without a pass that finds its greatest magnitude first (Transformer Engine's DelayedScaling
// with amax_compute_algo "max" and margin 0; Micikevicius et al. 2022, section 3.1).
#pragma once

#include <cstdint>
#include <span>

namespace strata::quantize {

// Steps that a history covers.
inline constexpr int64_t kDelayedHistory = 1024;

// A history, plain numbers of a checkpoint: the greatest magnitude in force, which ScaleRule::delayed() takes, and those of
// the last steps, the oldest first. 0 in force: nothing seen yet, so the scale is 1; of a step: it had nothing, or a NaN or
// infinity. All zeros at the start of a run.
constexpr int64_t delayed_state_size(int64_t steps) {
  return 1 + steps;
}

// After a step: `greatest` is that of its tensor on all ranks, and takes the place of the oldest. A NaN or infinity counts
// as 0 (Transformer Engine keeps it for as long as the history, and the scale as it is so long). The one in force becomes
// the greatest of the history, unless all of that is 0.
void follow_step(std::span<float> state, float greatest);

}  // namespace strata::quantize
