// Runs a data build's recipe: shared by the library and the command line.
#pragma once

#include <memory>

#include "comm/world.h"
#include "data/build/engine.h"
#include "strata/data.h"

namespace strata::library {

struct BuiltData {
  std::unique_ptr<data::BuildJob> job;
  data::BuildResult result;  // its statistics are complete on rank 0 only
};

// On this rank; all ranks of `world` call it. `file`: of the recipe, empty for one made from a command line. `progress`
// is called on rank 0 only. Errors as of build_data().
BuiltData run_recipe(comm::World& world, const ConfigValue& tree, const Path& file,
                     const strata::BuildOptions& options);

}  // namespace strata::library
