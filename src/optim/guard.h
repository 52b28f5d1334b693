// Decides, from a step's loss and gradient norm, whether its update is made: for update_scalars on every
// device. Pure functions of their arguments; any thread may call them.
//
// Values that a step compares with come from accepted steps only: the value of a skipped step would widen the
// spread that later steps are measured by.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "optim/loss_scale.h"

namespace strata::optim {

// How a value is recognized as a spike; `window` and `threshold` are the rule's.
enum class SpikePreset : uint8_t {
  kRobustZ,  // more than threshold · 1.4826 · MAD above the median of the last `window` values
  kOlmo,  // more than threshold · σ above the mean of the last `window` values (OLMo-core's SkipStepOptimizer)
  kMegatron,  // at least threshold times the largest of the first `window` values (Megatron-LM's rerun machine)
  kZClip,     // more than threshold · σ above a mean that decays by 0.97 (ZClip, arXiv 2504.02507)
  kRatio,     // at least threshold times the mean of the last `window` values
};
std::string_view name_of(SpikePreset preset);

// The longest window.
inline constexpr int64_t kMostGuardWindow = 512;
inline constexpr int kMostGuardRules = 8;

struct GuardRule {
  enum class Signal : uint8_t { kLoss, kGradNorm } signal = Signal::kLoss;
  SpikePreset preset = SpikePreset::kRobustZ;
  enum class Effect : uint8_t {
    kReport,  // only reports that it fired
    kSkip,    // the update is not made
    kClip,    // gradients are scaled down to the rule's limit; kZClip: to mean + (threshold² / z) · σ
  } effect = Effect::kSkip;
  int32_t window = 128;
  double threshold = 8;
  double clip_factor = 1;  // kClip, but for kZClip: of the limit
};

// The rules of a step, written by the host before its first micro-batch.
struct GuardRules {
  int32_t count = 0;
  std::array<GuardRule, kMostGuardRules> rules = {};
};

// Device state, saved with the checkpoint: the values of accepted steps.
struct GuardHistory {
  struct Values {
    std::array<double, kMostGuardWindow> first = {};   // of the run
    std::array<double, kMostGuardWindow> recent = {};  // value i of the run at i % kMostGuardWindow
  };
  int64_t accepted = 0;        // number of values so far
  int64_t skipped_in_row = 0;  // steps since the last accepted one, without those that have no target
  Values loss, grad_norm;
  LossScale loss_scale;
};

// What a step's decision was and why; the host reads it after the step.
struct GuardDecision {
  int32_t skip = 0;                                // 1: no update was made
  uint32_t fired = 0;                              // bit r: rule r fired
  int32_t nonfinite = 0;                           // bit 0: the loss is not finite; bit 1: the gradient norm
  int32_t no_targets = 0;                          // 1: no token of the step has a target
  double loss = 0;                                 // mean over the tokens with a target
  double grad_norm = 0;                            // of the mean gradient, before clipping
  double clip = 1;                                 // factor on the gradients
  std::array<double, kMostGuardRules> limit = {};  // of each rule that had enough values, else infinite
  float loss_scale = 0;                            // that the step's gradients were multiplied by; 0: none
  // 1: the scaled gradients were not finite and the scale adapts: no update was made, and no rule has judged
  // the step. Not an error unless the scale was the least one.
  int32_t overflowed = 0;
};

// `clip_norm`: the largest gradient norm, 0: no limit. Adds an accepted step's values to the history.
GuardDecision decide(const GuardRules& rules, double loss, double grad_norm, bool has_targets,
                     double clip_norm, GuardHistory& history);
// The same for a step whose loss was scaled by history.loss_scale, which then follows its rule. `grad_norm` is
// of the gradients without the scale.
GuardDecision decide_scaled(const GuardRules& rules, double loss, double grad_norm, bool has_targets,
                            double clip_norm, GuardHistory& history);

}  // namespace strata::optim
