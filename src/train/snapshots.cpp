#include "train/snapshots.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "program/memory_report.h"
#include "program/update.h"

namespace strata::training {
namespace {

int64_t bytes_of_one(const program::ProgramSet& set) {
  int64_t bytes = 0;
  for (const program::Persistent& value : set.persistent)
    if (is_kept_in_snapshots(value)) bytes += value.bytes;
  return bytes;
}

}  // namespace

int64_t detection_delay(const config::RecoveryTable& keys) {
  const bool by_steps = keys.snapshot.kind == config::Interval::Kind::kSteps;
  return keys.detection_delay.value_or(by_steps ? keys.snapshot.count : 50);
}

int64_t snapshots_kept(const config::RecoveryTable& keys) {
  if (keys.snapshot.kind != config::Interval::Kind::kSteps) return 0;
  return 1 + (detection_delay(keys) + keys.snapshot.count - 1) / keys.snapshot.count;
}

int64_t snapshot_bytes(const config::RecoveryTable& keys, const program::ProgramSet& set) {
  return snapshots_kept(keys) * bytes_of_one(set);
}

bool has_snapshots(const config::RecoveryTable& keys, const program::ProgramSet& set) {
  if (snapshots_kept(keys) == 0) return false;
  if (!keys.in_memory.is_word()) return *keys.in_memory;
  const int64_t budget = set.options.memory_budget;
  return budget == 0 ||
         set.arena_bytes + program::save_staging_bytes(set) + snapshot_bytes(keys, set) <= budget;
}

bool is_sound(const StepRecord& record) {
  return record.decision.skip == 0 && record.decision.fired == 0 && std::isfinite(record.param_norm);
}

bool is_snapshot_step(const config::RecoveryTable& keys, int64_t step) {
  return keys.snapshot.kind == config::Interval::Kind::kSteps && step % keys.snapshot.count == 0;
}

bool is_snapshot_due(const config::RecoveryTable& keys, const StepRecord& record) {
  return is_snapshot_step(keys, record.step) && is_sound(record);
}

Snapshots::Snapshots(const program::Executor& executor, int64_t capacity)
    : executor_(executor), capacity_(static_cast<size_t>(capacity)) {
  for (const program::Persistent& value : executor.set().persistent) {
    if (!is_kept_in_snapshots(value)) continue;
    values_.push_back(&value);
    bytes_ += value.bytes;
  }
}

std::vector<Snapshots::Snapshot>::iterator Snapshots::at(int64_t step) {
  return std::find_if(taken_.begin(), taken_.end(),
                      [&](const Snapshot& one) { return one.state.step == step; });
}

void Snapshots::take(const TrainingState& state) {
  if (capacity_ == 0) return;
  drop_after(state.step - 1);
  Snapshot next;
  if (taken_.size() == capacity_) {
    next = std::move(taken_.front());
    taken_.erase(taken_.begin());
  }
  next.state = state;
  next.bytes.resize(static_cast<size_t>(bytes_));
  std::byte* to = next.bytes.data();
  for (const program::Persistent* value : values_) {
    executor_.download(*value, to, value->bytes);
    to += value->bytes;
  }
  next.digests = digests_of(next);
  next.history = program::guard_history(executor_);
  taken_.push_back(std::move(next));
}

const TrainingState* Snapshots::find(int64_t at_most) const {
  for (auto one = taken_.rbegin(); one != taken_.rend(); ++one)
    if (one->state.step <= at_most) return &one->state;
  return nullptr;
}

std::vector<uint64_t> Snapshots::digests_of(const Snapshot& snapshot) const {
  std::vector<uint64_t> digests(values_.size());
  std::vector<const std::byte*> places;
  const std::byte* at = snapshot.bytes.data();
  for (const program::Persistent* value : values_) {
    places.push_back(at);
    at += value->bytes;
  }
  parallel_for(std::ssize(values_), [&](int64_t i) {
    const auto value = static_cast<size_t>(i);
    digests[value] = hash64(places[value], static_cast<size_t>(values_[value]->bytes));
  });
  return digests;
}

std::optional<std::string> Snapshots::damaged_value(int64_t step) const {
  const auto one = std::find_if(taken_.begin(), taken_.end(),
                                [&](const Snapshot& taken) { return taken.state.step == step; });
  STRATA_CHECK(one != taken_.end(), "there is no snapshot of step {}", step);
  const std::vector<uint64_t> now = digests_of(*one);
  const auto [differs, was] = std::mismatch(now.begin(), now.end(), one->digests.begin());
  if (differs == now.end()) return std::nullopt;
  return values_[static_cast<size_t>(differs - now.begin())]->name;
}

void Snapshots::restore(int64_t step) {
  const auto one = at(step);
  STRATA_CHECK(one != taken_.end(), "there is no snapshot of step {}", step);
  const std::byte* from = one->bytes.data();
  for (const program::Persistent* value : values_) {
    executor_.upload(*value, from, value->bytes);
    from += value->bytes;
  }
  program::set_guard_history(executor_, one->history);
}

void Snapshots::drop_after(int64_t step) {
  std::erase_if(taken_, [&](const Snapshot& one) { return one.state.step > step; });
}

void Snapshots::drop(int64_t step) {
  std::erase_if(taken_, [&](const Snapshot& one) { return one.state.step == step; });
}

std::span<std::byte> Snapshots::bytes_of(int64_t step) {
  const auto found = at(step);
  return found == taken_.end() ? std::span<std::byte>() : std::span<std::byte>(found->bytes);
}

}  // namespace strata::training
