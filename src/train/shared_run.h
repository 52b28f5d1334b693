// What ranks that are threads of one process make once: the first of them fills it in, and a barrier later
// the others read it.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "config/resolve.h"
#include "program/program.h"

namespace strata::train {

struct SharedRun {
  std::optional<config::ResolvedRun> resolved;  // with what compiling decided
  // By place on the pipeline axis: ranks of one stage run the same programs.
  std::map<int32_t, std::shared_ptr<const program::ProgramSet>> sets;
};

}  // namespace strata::train
