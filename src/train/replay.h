// Repeats a step of a run bit for bit, without changing the run: strata replay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/world.h"
#include "train/run_documents.h"

namespace strata::training {

// A value that an instruction computed.
struct ReplayedValue {
  std::string instruction;  // "F2: L3 linear"
  std::string tensor;
  std::optional<int64_t> layer;
  int rank = 0;
  std::vector<SampleDocument> documents =
      {};  // that the instruction worked on: of a micro-batch or of the step
};

struct Replay {
  int64_t step = 0;
  // Whether loss, gradient norm and the weights' digest equal the run's record.
  bool same = false;
  // The first value in which two executions of the step differ; nullopt if none does: what differs from the
  // run then comes from outside this machine.
  std::optional<ReplayedValue> first_difference = {};
  std::optional<ReplayedValue> first_nonfinite = {};  // the first NaN or infinity, if the step has any
};

struct ReplayOptions {
  Path run;
  int64_t step = 0;
  FileSystem* files = nullptr;  // nullptr: the real file system
};

// Starts from the newest checkpoint before the step, or from the start of the run, with `ranks` threads as
// ranks. ConfigError for a step that the run has not made, another number of ranks, threads or instruction
// sets than the run had, and a folder that holds no run; DataError and WorldError as train_run().
Replay replay_on_threads(const ReplayOptions& options, int ranks);
// The number of ranks of a run.
int64_t ranks_of_run(const Path& run);

}  // namespace strata::training
