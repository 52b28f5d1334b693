// The scale of an fp16 run's loss: gradients are computed of loss · scale, so that small ones are not lost
// below fp16's range, and are divided by it before anything reads them. Pure functions for any thread.
//
// Megatron-LM's dynamic rule (DynamicGradScaler in megatron/core/optimizer/grad_scaler.py): a step whose
// gradients are not finite makes no update and uses up one of `kLossScalePatience`; once that is used up,
// each such step halves the scale. After `kLossScaleWindow` steps in a row without one the scale doubles, and
// only then is the patience whole again.
#pragma once

#include <cstdint>

namespace strata::optim {

// A power of two, so that it changes no bit of a fraction. Gradients are sums over tokens here, not means as
// in Megatron-LM, so they start larger, and the scale smaller than its 2^32.
inline constexpr float kFirstLossScale = 0x1p16f;
inline constexpr float kLeastLossScale = 1;
inline constexpr float kMostLossScale = 0x1p126f;  // seeds are fp32
inline constexpr int32_t kLossScaleWindow = 1000;
inline constexpr int32_t kLossScalePatience = 2;

// Device state, saved with the checkpoint. Without padding: its bytes are compared.
struct LossScale {
  float scale = 0;          // of the next step; 0: the run scales no loss
  int32_t good_steps = 0;   // in a row, since the last one that overflowed or doubled the scale
  int32_t patience = 0;     // steps that may overflow before the scale is halved; 0 or less: none
  int32_t is_adaptive = 0;  // 1: follows the rule; 0: is fixed
};

inline LossScale first_loss_scale() {
  return {.scale = kFirstLossScale, .good_steps = 0, .patience = kLossScalePatience, .is_adaptive = 1};
}
inline LossScale fixed_loss_scale(float scale) {
  return {.scale = scale, .good_steps = 0, .patience = 0, .is_adaptive = 0};
}

// The state after a step that has targets; `overflowed`: its gradients were not finite. A fixed scale stays.
inline void follow_step(LossScale& state, bool overflowed) {
  if (state.is_adaptive == 0) return;
  if (overflowed) {
    state.good_steps = 0;
    --state.patience;
    if (state.patience <= 0 && state.scale > kLeastLossScale) state.scale /= 2;
    return;
  }
  if (++state.good_steps < kLossScaleWindow) return;
  state.good_steps = 0;
  state.patience = kLossScalePatience;
  if (state.scale < kMostLossScale) state.scale *= 2;
}

}  // namespace strata::optim
