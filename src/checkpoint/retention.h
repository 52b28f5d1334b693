// Decides which checkpoints of a run are kept and removes the others.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"

namespace strata::checkpoint {

// Suffix of a checkpoint that was set aside because the run went back to an earlier step; never resumed from.
inline constexpr std::string_view kDiscardedSuffix = ".discarded";

// True for accuracies (…/acc, …/acc_norm), false for losses and perplexities.
bool higher_is_better(std::string_view metric);
// The value of a metric when a checkpoint was saved: an evaluation, or for "loss" the loss of its step.
// Nothing if it was not measured or is not finite.
std::optional<double> measured(const Health& health, const std::string& metric);

// A checkpoint folder, found by name.
struct ListedCheckpoint {
  Path path;
  int64_t step = 0;
};

// The checkpoints of a folder, found by name only, newest first. A checkpoint that a save moved aside before
// it was killed is included if there is no other one of its step.
std::vector<ListedCheckpoint> list_checkpoints(const Path& folder);

// The checkpoints that were set aside, newest first.
std::vector<ListedCheckpoint> list_discarded(const Path& folder);

// Chooses the checkpoints to remove: none as long as there is no healthy one. Damaged checkpoints are not
// candidates, because users will want to examine them. An unhealthy checkpoint is kept only if it is the
// newest of all.
struct RetentionCandidate {
  ListedCheckpoint checkpoint;
  Health health;
};
std::vector<Path> choose_to_prune(std::span<const RetentionCandidate> newest_first,
                                  const RetentionPolicy& policy);

struct PruneResult {
  std::vector<Path> removed;
  std::vector<std::string> warnings;  // checkpoints that could not be read or removed
};

// The policy in the newest readable checkpoint of a folder; the defaults if there is none.
RetentionPolicy policy_of(const Path& folder);

// Applies the policy to the run's checkpoints and, separately, to those that were set aside. First reads back
// and verifies the newest healthy checkpoint; removes nothing if it is damaged. `just_saved` is not read
// back: its bytes are durable, its sizes have been checked, and one rank would have to read what all ranks
// wrote. Takes no lock: call it only while no save can run.
PruneResult prune(FileSystem& files, const Path& folder, const RetentionPolicy& policy,
                  const Path& just_saved = {});

}  // namespace strata::checkpoint
