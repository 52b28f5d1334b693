// Runs a data build: all parts through all phases, then the shared results. A build that was stopped or
// killed resumes; finished parts are kept. The result is the same for any number of threads and ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "comm/world.h"
#include "data/build/build_stats.h"
#include "data/build/job.h"

namespace strata::data {

struct BuildProgress {
  std::string what;       // "reading and filtering", "deciding: minhash", …
  int64_t done = 0;       // bytes of this phase
  int64_t total = 0;      // 0: not known
  bool finished = false;  // the last report of this phase
};

struct BuildOptions {
  bool overwrite = false;  // replace the result of another recipe in the same folder
  std::function<void(const BuildProgress&)> progress;  // a few times a second, from a separate thread
};

struct BuildResult {
  bool finished = false;  // false: stopped on request
  bool reused = false;    // the folder held this result already
  BuildStats stats;       // complete only on rank 0
  double seconds = 0;
};

// ConfigError where the folder holds another build's result, or is locked; DataError as the recipe's on_error
// asks for; WorldError for a full disk.
BuildResult run_build(BuildJob& job, comm::World& world, const BuildOptions& options);

}  // namespace strata::data
