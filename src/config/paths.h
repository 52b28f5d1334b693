// Resolution of relative paths in a configuration.
#pragma once

#include "config/config.h"

namespace strata::config {

// If run.started_in is set, makes the relative paths of `config`, read from `file`, relative to it, or to the
// project's present location if it has been moved as a whole. Paths from --set are relative to the current
// directory.
void lay_paths(RunConfig& config, const Path& file);

// Prepares `config` for storing: sets run.started_in and makes paths, which are relative to the current
// directory, relative to it.
void take_back_paths(RunConfig& config);

}  // namespace strata::config
