// What ranks that are threads of one process make once: the first of them fills it in, and a barrier later
// the others read it.
#pragma once

#include <memory>
#include <optional>

#include "config/resolve.h"
#include "program/program.h"

namespace strata::train {

struct SharedRun {
  std::optional<config::ResolvedRun> resolved;  // with what compiling decided
  std::shared_ptr<const program::ProgramSet> set;
};

}  // namespace strata::train
