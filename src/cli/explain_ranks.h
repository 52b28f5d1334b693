// What strata explain tells of several ranks.
#pragma once

#include <nlohmann/json.hpp>

#include "program/program.h"

namespace strata::cli {

// The mesh, what each rank holds, and what it sends in a step.
nlohmann::ordered_json ranks_json(const program::ProgramSet& set);
// The same for people, the mesh as rows of ranks; nothing where there is one rank.
void print_ranks(const program::ProgramSet& set);

}  // namespace strata::cli
