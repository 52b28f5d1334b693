// How a run copies the state of its ranks to memory that outlives them: how often, to which hosts, and
// whether there is space.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/world.h"
#include "config/run_config.h"
#include "program/program.h"

namespace strata::training {

struct CopyPlan {
  config::Interval interval;  // kNever: no copies are made
  // By rank, the rank on another host that stores its copies too; empty: none does.
  std::vector<int> partners = {};

  bool makes_copies() const { return interval.kind != config::Interval::Kind::kNever; }
};

// "every 20 steps", "for at most 1 % of the time"
std::string interval_in_words(const config::Interval& interval);
// The values that a copy has: those that snapshots have.
std::vector<const program::Persistent*> copied_values(const program::ProgramSet& set);
// Bytes of a rank's two copies.
int64_t copy_bytes(const program::ProgramSet& set);
// Whether memory.budget leaves enough for them next to the step, saves and snapshots.
bool budget_holds_copies(const config::RecoveryTable& keys, const program::ProgramSet& set, int64_t bytes);

// By rank, a rank on another host: the one at the same place on the next host. Empty if there is one host.
// `host_of`: by rank, as in comm::Topology.
std::vector<int> partners_on_hosts(const std::vector<int>& host_of);

// All ranks call it. `is_launched`: by strata launch. Without enough space a plan by "auto" is to make none,
// with a warning; ConfigError, on all ranks, if the user asked for copies.
CopyPlan plan_copies(const config::RecoveryTable& keys, bool is_launched, const program::ProgramSet& set,
                     comm::World& world, comm::Communicator& all, FileSystem& files, const Path& run);

}  // namespace strata::training
