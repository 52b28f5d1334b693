// The other kinds of strata eval.
#pragma once

#include "cli/actions.h"

namespace strata::cli {

int run_task_evaluation(const EvalOptions& options);     // --task
int run_experts_evaluation(const EvalOptions& options);  // --experts

}  // namespace strata::cli
