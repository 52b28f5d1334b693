// Finds the instructions where diverged lanes reconverge.
#pragma once

#include "ptx/instruction.h"

namespace strata::gpu_tests {

// Sets `join` of each branch to the first instruction of its immediate post-dominator, or kNone.
void set_joins(Kernel& kernel);

}  // namespace strata::gpu_tests
