// Checks that all ranks of a job were started alike.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "comm/world.h"
#include "config/resolve.h"
#include "program/program.h"
#include "train/trainer.h"

namespace strata::training {

// Compares the inputs of all ranks: the program's version, the options of `strata train`, and each key of the
// configuration. The exchange has the same shape for all inputs and comes before all others. Throws the same
// ConfigError on all ranks: it names the first key that differs, the rank and both values. Returns the
// process id of the first rank if it runs on this host, else 0. A single rank compares nothing and gets 0.
int64_t require_same_start(comm::World& world, comm::Communicator& all, const RunOptions& options);

// Like require_same_start(), for the results of the start: the keys left to the program, the training tokens,
// and the compiled step, which may differ only between the stages of a pipeline.
void require_same_work(comm::World& world, comm::Communicator& all, const config::RunConfig& resolved,
                       const config::RunData& data, const program::ProgramSet& set);

}  // namespace strata::training
