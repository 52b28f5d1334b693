// The part of an explanation about several ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "program/program.h"

namespace strata::library {

// The mesh, a rank's memory, and its communication per step. Ranks of one pipeline stage, or all ranks
// without a pipeline, have the same.
nlohmann::ordered_json ranks_json(const program::ProgramSet& set, int64_t rank);
// The same for people, with the mesh as rows of ranks; empty for one rank.
std::string ranks_text(const program::ProgramSet& set, int64_t rank);
// Memory of each stage's ranks, one row per place on the pipeline axis.
std::string stages_table(const std::vector<std::shared_ptr<const program::ProgramSet>>& stages);
nlohmann::ordered_json stages_json(const std::vector<std::shared_ptr<const program::ProgramSet>>& stages);

}  // namespace strata::library
