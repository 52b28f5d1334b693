// Supervises the ranks of a run: starts them with mpirun or srun, restarts them by the rules of launch/policy.h, and
// records each attempt in RUN/ledger.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/run_config.h"
#include "launch/attempt.h"

namespace strata::launch {

struct LaunchOptions {
  config::RunConfig config;          // as read; the ranks read it again and validate it
  std::vector<std::string> of_rank;  // the command of each rank: strata train RUN.toml --set …
  std::optional<int64_t> ranks;      // none: as many as the hosts have slots, or as the layout has
  std::optional<Path> hosts;         // a file
  int64_t spares = 0;                // hosts at the end of that file that replace others
  std::optional<int64_t> max_restarts;
};

// Returns the exit code of the last attempt; after a signal that asked it to stop and a clean save, 130, 143 or 75.
// ConfigError: there is no launcher, the run is running, or hosts are missing at the first start. WorldError: the hosts
// that answer cannot run any layout.
int launch_run(const LaunchOptions& options, StopSignals& signals);

}  // namespace strata::launch
