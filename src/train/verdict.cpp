#include "train/verdict.h"

#include <cmath>

namespace strata::training {

Verdict verdict_on(const StepRecord& record) {
  const bool is_finite = std::isfinite(record.loss.value_or(0)) && std::isfinite(record.grad_norm);
  return is_finite ? Verdict::kAccepted : Verdict::kDiverged;
}

}  // namespace strata::training
