// The faults that a run injects into itself: the entries of debug.inject.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::config {

struct RunConfig;

enum class FaultKind : uint8_t {
  kNan,
  kInf,
  kSpike,
  kGarbage,
  kFlip,
  kSlow,
  kStop,
  kKill,
  kFullDisk,
  kSlowDisk,
  kDrop,
};
enum class FaultPhase : uint8_t { kForward, kBackward, kUpdate, kSave, kGather };
enum class FlipWhere : uint8_t { kWeights, kGradients, kSnapshot, kCheckpoint, kCopy };
std::string_view spelled(FaultKind kind);
std::string_view spelled(FaultPhase phase);

struct Fault {
  std::string entry;  // as in the configuration; of a drawn one, as it could be there
  FaultKind kind = FaultKind::kNan;
  int64_t step = 1;
  int64_t rank = 0;
  std::optional<FaultPhase> phase = {};  // always set for nan and inf
  FlipWhere where = FlipWhere::kWeights;
  double factor = 10;     // spike: in units of the root mean square; slow_disk: of a write's time
  double seconds = 1;     // slow
  int64_t for_steps = 1;  // steps in which it acts, from `step` on; for garbage the steps after it (0)

  // The last step in which it acts.
  int64_t last_step() const { return step + for_steps - (kind == FaultKind::kGarbage ? 0 : 1); }
  // Whether it waits for the first save, snapshot or copy at or after its step.
  bool waits_for_save() const {
    return phase == FaultPhase::kSave || (kind == FaultKind::kFlip && where == FlipWhere::kCheckpoint);
  }
  bool waits_for_snapshot() const { return kind == FaultKind::kFlip && where == FlipWhere::kSnapshot; }
  bool waits_for_copy() const { return kind == FaultKind::kFlip && where == FlipWhere::kCopy; }
  // Whether it acts on data stored after a step instead of in the step.
  bool waits() const { return waits_for_save() || waits_for_snapshot() || waits_for_copy(); }
  // Whether it changes the numbers of its step. It then belongs to the history of the run, and acts again
  // when a resumed run computes that step again; faults of the machine do not.
  bool changes_numbers() const;
};

// "random@steps=N,seed=S,kinds=KIND:WEIGHT+…": faults drawn by step.
struct RandomFaults {
  std::string entry;
  int64_t steps = 100;  // on average between two faults
  uint64_t seed = 0;
  std::vector<std::pair<FaultKind, double>> kinds;

  // The fault of a step, if there is one: a pure function of the seed and the step, and the same on all
  // `ranks`.
  std::optional<Fault> draw(int64_t step, int64_t ranks) const;
};

struct InjectPlan {
  std::vector<Fault> faults;
  std::vector<RandomFaults> random;
};
// Reads the entries; adds a sentence to `problems` for each one that is wrong, and leaves it out.
// `total_steps`, `ranks`: of the run; 0: not known yet.
InjectPlan read_inject(std::span<const std::string> entries, int64_t total_steps, int64_t ranks,
                       std::vector<std::string>& problems);

// The errors in debug.inject; empty: none.
std::string inject_error(const RunConfig& config);

}  // namespace strata::config
