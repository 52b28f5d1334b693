// The verdict on a step, after all ranks have agreed on its record and before the run's position advances.
#pragma once

#include "train/step_record.h"

namespace strata::training {

enum class Verdict {
  kAccepted,
  kDiverged,  // a loss or gradient that is not finite; the program has not updated the weights
};

// Uses only fields of the record that are the same on all ranks, so that all reach the same verdict without
// another exchange.
Verdict verdict_on(const StepRecord& record);

}  // namespace strata::training
