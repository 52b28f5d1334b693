// The disk space that a run needs.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "config/run_config.h"
#include "program/program.h"

namespace strata::training {

struct DiskNeed {
  int64_t checkpoints = 0;  // yet to be written and on disk together, including the one being written
  uint64_t checkpoint_bytes = 0;
  uint64_t final_bytes = 0;
  uint64_t bytes() const { return static_cast<uint64_t>(checkpoints) * checkpoint_bytes + final_bytes; }
};

// For a run with `existing` checkpoints that continues after step `done`. If the save interval is a time or
// "auto", the run is assumed to fill what checkpoint.keep_last, keep_best and keep_every allow.
DiskNeed disk_need(const config::CheckpointTable& table, bool evaluates, int64_t existing, int64_t done,
                   int64_t total_steps, int64_t step_tokens);

// WorldError if the disk of the run's folder has less free space than the run needs.
void check_disk(FileSystem& files, const Path& folder, const config::RunConfig& config,
                const models::ModelConfig& model, const program::ProgramSet& set, int64_t total_steps);

}  // namespace strata::training
