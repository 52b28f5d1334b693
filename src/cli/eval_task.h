// The two kinds of strata eval.
#pragma once

#include "cli/actions.h"

namespace strata::cli {

int run_task_evaluation(const EvalOptions& options);  // --task

}  // namespace strata::cli
