// Completion of cp.async.
#pragma once

#include "ptx/warp.h"

namespace strata::gpu_tests {

// Completes the copies of the mask's lanes, except those of the `keep` newest groups.
void complete_copies(Warp& w, uint32_t mask, uint32_t keep, bool uncommitted_too);

}  // namespace strata::gpu_tests
