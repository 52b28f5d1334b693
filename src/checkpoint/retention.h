// Which checkpoints of a run stay.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"

namespace strata::checkpoint {

// A checkpoint whose step the run went back behind; set aside under this name, and never resumed from.
inline constexpr std::string_view kDiscardedSuffix = ".discarded";

// Of an accuracy (…/acc, …/acc_norm) the highest value is the best, of a loss or a perplexity the lowest.
bool higher_is_better(std::string_view metric);
// What was measured before a checkpoint was saved: an evaluation, or "loss", that of its step. Nothing where
// it was not, or is not finite.
std::optional<double> measured(const Health& health, const std::string& metric);

// A checkpoint folder as a listing finds it.
struct ListedCheckpoint {
  Path path;
  int64_t step = 0;
};

// The checkpoints of a folder by name alone, newest first. One that was moved aside by a save that was killed
// before it could put the new one in its place counts while there is no other of its step.
std::vector<ListedCheckpoint> list_checkpoints(const Path& folder);

// Those that were set aside, newest first.
std::vector<ListedCheckpoint> list_discarded(const Path& folder);

// What may go: never a damaged one (somebody will want to look at it), and nothing as long as no healthy one
// is there. Unhealthy checkpoints count for nothing; of them, only one newer than all healthy ones stays.
struct RetentionCandidate {
  ListedCheckpoint checkpoint;
  Health health;
};
std::vector<Path> choose_to_prune(std::span<const RetentionCandidate> newest_first,
                                  const RetentionPolicy& policy);

struct PruneResult {
  std::vector<Path> removed;
  std::vector<std::string> warnings;  // what could not be read or removed
};

// What the run keeps that saves here, as its newest readable checkpoint says; the defaults where none does.
RetentionPolicy policy_of(const Path& folder);

// Applies the policy to the run's checkpoints, and once more to those that were set aside, which count for
// themselves. Before anything is removed the newest healthy checkpoint that stays is read back and verified;
// if it is not whole, nothing is removed. `just_saved` is not read back: its bytes are durable, its sizes
// were asked for anew, and what all ranks wrote one would read alone. Takes no lock: use it where no save can
// run.
PruneResult prune(FileSystem& files, const Path& folder, const RetentionPolicy& policy,
                  const Path& just_saved = {});

}  // namespace strata::checkpoint
