// Copies of a run's state in memory, to which it can go back without reading a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "program/executor.h"
#include "train/run_store.h"
#include "train/step_record.h"

namespace strata::training {

// Whether it is part of the state that a run goes back to: weights and optimizer states.
constexpr bool is_kept_in_snapshots(const program::Persistent& value) {
  return value.role == graph::Role::kParameter || value.role == graph::Role::kState;
}

// The number of snapshots that a run keeps: as many as `detection_delay` covers, and the newest.
int64_t snapshots_kept(const config::RecoveryTable& keys);
// Steps for which older snapshots are kept.
int64_t detection_delay(const config::RecoveryTable& keys);
// Bytes of all snapshots of a rank; 0 with recovery.snapshot = "never".
int64_t snapshot_bytes(const config::RecoveryTable& keys, const program::ProgramSet& set);
// Whether a rank of this set has them in memory, by recovery.in_memory; "auto": if memory.budget leaves
// enough next to the arena and the copies for saves.
bool has_snapshots(const config::RecoveryTable& keys, const program::ProgramSet& set);

// Whether nothing is known against the state after this step.
bool is_sound(const StepRecord& record);
// Whether a snapshot is taken after this step: if it is one of the interval's, and the state is sound.
bool is_snapshot_step(const config::RecoveryTable& keys, int64_t step);
bool is_snapshot_due(const config::RecoveryTable& keys, const StepRecord& record);

// All ranks construct one, and take and restore at the same steps. Memory is allocated when a snapshot is
// first taken and reused for later ones. Used by one thread.
class Snapshots {
 public:
  // `capacity`: snapshots that are kept; 0: none is taken. The executor must outlive it.
  Snapshots(const program::Executor& executor, int64_t capacity);

  bool has_any() const { return !taken_.empty(); }
  // Copies weights, optimizer states and counters from the device. The oldest is dropped if there are too
  // many; one of the same step is replaced.
  void take(const TrainingState& state);
  // The newest of at most this step; nullptr: none.
  const TrainingState* find(int64_t at_most) const;
  // The first value of a snapshot whose bits are no longer those that were copied; nullopt: it is intact.
  std::optional<std::string> damaged_value(int64_t step) const;
  // Copies the state of find(step) back to the device; the caller then packs the weights. `step` has one.
  void restore(int64_t step);
  void drop_after(int64_t step);
  void drop(int64_t step);

  // The copy of a value in the snapshot of a step: for injected errors. Empty if there is none.
  std::span<std::byte> bytes_of(int64_t step);

 private:
  struct Snapshot {
    TrainingState state;
    std::vector<std::byte> bytes;
    std::vector<uint64_t> digests;  // of each value
    optim::GuardHistory history;
  };
  std::vector<Snapshot>::iterator at(int64_t step);
  std::vector<uint64_t> digests_of(const Snapshot& snapshot) const;

  const program::Executor& executor_;
  size_t capacity_;
  std::vector<const program::Persistent*> values_;
  int64_t bytes_ = 0;            // of one snapshot
  std::vector<Snapshot> taken_;  // oldest first
};

}  // namespace strata::training
