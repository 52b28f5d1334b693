// Whether all ranks of a job were started alike.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "comm/world.h"
#include "config/resolve.h"
#include "program/program.h"
#include "train/trainer.h"

namespace strata::train {

// Compares what every rank was asked for: the program's version, the options of `strata train`, and each key
// of the configuration. The exchange has one shape whatever ranks were asked for, and comes before all
// others. Throws on all ranks one ConfigError that names the first key that differs, the rank and both
// values. Returns the number of the first rank's process where it is on this host, else 0; one rank alone
// compares nothing and gets 0.
int64_t require_same_start(comm::World& world, comm::Communicator& all, const RunOptions& options);

// // The same for what a start finds: the keys that were left to the program, the training tokens, and the
// compiled step, which differs between the stages of a pipeline alone.
void require_same_work(comm::World& world, comm::Communicator& all, const config::RunConfig& resolved,
                       const config::RunData& data, const program::ProgramSet& set);

}  // namespace strata::train
