// Where the relative paths of a configuration begin.
#pragma once

#include "config/config.h"

namespace strata::config {

// Where run.started_in is given, makes the relative paths of `config`, read from `file`, begin there, or
// where the project is now if it has been moved as a whole. Paths of --set begin at the working folder.
void lay_paths(RunConfig& config, const Path& file);

// For storing: run.started_in is set, and the paths of `config`, which lead from the working folder, begin
// there.
void take_back_paths(RunConfig& config);

}  // namespace strata::config
