// The room that a run takes on the disk.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "config/run_config.h"
#include "program/program.h"

namespace strata::train {

struct DiskNeed {
  int64_t checkpoints =
      0;  // that are still to be written and will lie there together, one in the writing included
  uint64_t checkpoint_bytes = 0;
  uint64_t final_bytes = 0;
  uint64_t bytes() const { return static_cast<uint64_t>(checkpoints) * checkpoint_bytes + final_bytes; }
};

// Of a run with `existing` checkpoints that goes on after step `done`. Where nothing tells how often it
// saves, it is taken to fill what checkpoint.keep_last, keep_best and keep_every allow.
DiskNeed disk_need(const config::CheckpointTable& table, bool evaluates, int64_t existing, int64_t done,
                   int64_t total_steps, int64_t step_tokens);

// WorldError where the disk of the run's folder has less room than the run will take.
void check_disk(FileSystem& files, const Path& folder, const config::RunConfig& config,
                const models::ModelConfig& model, const program::ProgramSet& set, int64_t total_steps);

}  // namespace strata::train
