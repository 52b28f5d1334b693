// The two kinds of strata eval.
#pragma once

#include "train/commands.h"

namespace strata::train {

int run_task_evaluation(const EvalOptions& options);  // --task

}  // namespace strata::train
