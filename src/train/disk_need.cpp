#include "train/disk_need.h"

#include <fmt/core.h>
#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"

namespace strata::training {
namespace {

// Saves in the remaining steps, including the one after the last step.
int64_t saves_left(const config::Interval& interval, int64_t left, int64_t step_tokens) {
  switch (interval.kind) {
    case config::Interval::Kind::kSteps:
      return left / interval.count + 1;
    case config::Interval::Kind::kTokens:
      return left * step_tokens / interval.count + 1;
    case config::Interval::Kind::kNever:
      return 1;
    default:
      return left;
  }
}

}  // namespace

DiskNeed disk_need(const config::CheckpointTable& table, bool evaluates, int64_t existing, int64_t done,
                   int64_t total_steps, int64_t step_tokens) {
  const int64_t left = std::max<int64_t>(0, total_steps - done);
  const int64_t saves = std::min(left, saves_left(table.interval, left, step_tokens));
  int64_t kept = table.keep_last + (evaluates ? table.keep_best : 0);
  if (table.keep_every.kind == config::Interval::Kind::kSteps)
    kept += total_steps / table.keep_every.count - done / table.keep_every.count;
  // The oldest checkpoint is removed once the new one is complete.
  const int64_t most = std::max<int64_t>(1, kept + 1 - existing);
  return {.checkpoints = std::min(saves, most)};
}

void check_disk(FileSystem& files, const Path& folder, const config::RunConfig& config,
                const models::ModelConfig& model, const program::ProgramSet& set, int64_t total_steps) {
  const auto listed = checkpoint::list_checkpoints(folder / "checkpoints");
  const int64_t done = listed.empty() ? 0 : listed.front().step;
  DiskNeed need = disk_need(config.checkpoint, config.eval.interval.kind != config::Interval::Kind::kNever,
                            std::ssize(listed), done, total_steps,
                            config.training.global_batch_size * config.training.sequence_length);
  if (need.checkpoints == 0) return;  // finished
  const auto parameters = static_cast<uint64_t>(models::parameter_count(model));
  need.checkpoint_bytes = parameters * 4;
  for (const program::Persistent& entry : set.persistent) {
    if (entry.role == graph::Role::kParameter)  // without a master: of the rank's own part
      need.checkpoint_bytes -=
          static_cast<uint64_t>(bytes_of(DType::kF32, entry.shape.elements()) - entry.bytes);
    if (entry.role == graph::Role::kState) need.checkpoint_bytes += static_cast<uint64_t>(entry.bytes);
  }
  need.final_bytes = parameters * 2;
  checkpoint::check_space(
      files, folder, need.bytes(),
      fmt::format(
          "the run (up to {} checkpoints of {} at a time, by checkpoint.keep_last, keep_best and keep_every, "
          "and final/ of {})",
          need.checkpoints, human_bytes(static_cast<double>(need.checkpoint_bytes)),
          human_bytes(static_cast<double>(need.final_bytes))));
}

}  // namespace strata::training
