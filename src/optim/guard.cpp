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

}  // namespace strata::optim
