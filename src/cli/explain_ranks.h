// The part of strata explain about several ranks.
#pragma once

#include <memory>
#include <vector>

#include "base/json.h"
#include "program/program.h"

namespace strata::cli {

// The mesh, a rank's memory, and its communication per step. Ranks of one pipeline stage, or all ranks
// without a pipeline, have the same.
nlohmann::ordered_json ranks_json(const program::ProgramSet& set, int64_t rank);
// Prints the same facts for people, with the mesh as rows of ranks; prints nothing for one rank.
void print_ranks(const program::ProgramSet& set, int64_t rank);
// Memory of each stage's ranks, one row per place on the pipeline axis.
void show_stages(const std::vector<std::shared_ptr<const program::ProgramSet>>& stages, bool json);

}  // namespace strata::cli
