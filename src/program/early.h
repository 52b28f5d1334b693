// What the update begins with may begin earlier: sums of gradients over ranks, as soon as the last
// micro-batch has made its own.
#pragma once

#include <span>
#include <vector>

#include "program/program.h"
#include "program/waits.h"

namespace strata::program {

// Of the communication of `update`, what conflicts with nothing in front of it there, in the order in which
// it may start beside `action`, the list that runs right before. What could only start at its end is left
// out. Ranges are bytes of the arena, so that memory which `action` still uses is told.
std::vector<Early> find_early(std::span<const Access> action, std::span<const Access> update);

}  // namespace strata::program
