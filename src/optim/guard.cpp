#include "optim/guard.h"

#include "optim/guard_decide.h"

namespace strata::optim {

std::string_view name_of(SpikePreset preset) {
  switch (preset) {
    case SpikePreset::kRobustZ:
      return "robust_z";
    case SpikePreset::kOlmo:
      return "olmo";
    case SpikePreset::kMegatron:
      return "megatron";
    case SpikePreset::kZClip:
      return "zclip";
    case SpikePreset::kRatio:
      return "ratio";
  }
  return "";
}

GuardDecision decide(const GuardRules& rules, double loss, double grad_norm, bool has_targets,
                     double clip_norm, GuardHistory& history) {
  std::array<double, kGuardWorkspace> workspace = {};
  return decide_in(rules, loss, grad_norm, has_targets, clip_norm, history, workspace.data());
}

GuardDecision decide_scaled(const GuardRules& rules, double loss, double grad_norm, bool has_targets,
                            double clip_norm, GuardHistory& history) {
  LossScale& scale = history.loss_scale;
  const float used = scale.scale;
  const bool overflowed = scale.is_adaptive != 0 && has_targets && !guard::is_finite(grad_norm);
  GuardDecision decision;
  if (overflowed) {
    decision = {.skip = 1, .loss = loss, .grad_norm = grad_norm, .overflowed = 1};
    decision.limit.fill(guard::kNone);
  } else {
    decision = decide(rules, loss, grad_norm, has_targets, clip_norm, history);
  }
  decision.loss_scale = used;
  if (has_targets) follow_step(scale, overflowed);
  return decision;
}

}  // namespace strata::optim
