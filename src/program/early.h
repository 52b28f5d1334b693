// Finds work of the update that can start early: sums of gradients over ranks, as soon as the last
// micro-batch has made its terms.
#pragma once

#include <span>
#include <vector>

#include "program/program.h"
#include "program/waits.h"

namespace strata::program {

// Returns the communication instructions of `update` that conflict with nothing before them there, in the
// order in which they may start during `action`, the list that runs right before. Those that could only start
// at its end are left out, and those that keep their order (Access::in_order). Ranges are bytes of the arena, so that memory which `action` still uses is
// recognized.
std::vector<Early> find_early(std::span<const Access> action, std::span<const Access> update);

}  // namespace strata::program
