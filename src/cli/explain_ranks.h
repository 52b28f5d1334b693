// What strata explain tells of several ranks.
#pragma once

#include <memory>
#include <vector>

#include "base/json.h"
#include "program/program.h"

namespace strata::cli {

// The mesh, what a rank holds, and what it sends in a step. Ranks of one stage of a pipeline, and all where
// there is none, hold and send as much.
nlohmann::ordered_json ranks_json(const program::ProgramSet& set, int64_t rank);
// The same for people, the mesh as rows of ranks; nothing where there is one rank.
void print_ranks(const program::ProgramSet& set, int64_t rank);
// What the ranks of each stage hold, a row for each place on the pipeline axis.
void show_stages(const std::vector<std::shared_ptr<const program::ProgramSet>>& stages, bool json);

}  // namespace strata::cli
