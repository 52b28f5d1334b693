// Look-up table of the F, I and W actions of a schedule, for messages, checks and the simulator. Internal to
// this module.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace strata::parallel {

// Numbers the actions of all ranks consecutively, rank by rank; an index identifies an action.
class ActionTable {
 public:
  static constexpr int32_t kNone = -1;
  using OnError = std::function<void(std::string)>;

  // Reports each action that is out of range, on the wrong rank for its stage, or duplicated, and leaves it
  // out of the table. `schedule` must outlive the table.
  ActionTable(const Schedule& schedule, const OnError& on_error);
  // For a schedule known to be sound; else InternalError.
  explicit ActionTable(const Schedule& schedule);

  const Schedule& schedule() const { return schedule_; }
  int32_t size() const { return first_.back(); }
  int32_t first_of(int32_t rank) const {
    return first_[static_cast<size_t>(rank)];
  }  // also for rank_count(): the end
  int32_t rank_of(int32_t index) const { return rank_of_[static_cast<size_t>(index)]; }
  const Action& action(int32_t index) const { return actions_[static_cast<size_t>(index)]; }

  // The index of a stage's F, of its I (or B, or FB), of its W (or B, or FB); kNone if it is missing.
  int32_t forward(int32_t micro_batch, int32_t stage) const { return forward_[cell(micro_batch, stage)]; }
  int32_t input_grad(int32_t micro_batch, int32_t stage) const {
    return input_grad_[cell(micro_batch, stage)];
  }
  int32_t weight_grad(int32_t micro_batch, int32_t stage) const {
    return weight_grad_[cell(micro_batch, stage)];
  }
  // "rank 1, action 7 (F3@1)", counted from 0.
  std::string where(int32_t index) const;

 private:
  size_t cell(int32_t micro_batch, int32_t stage) const {
    return static_cast<size_t>(micro_batch) * static_cast<size_t>(schedule_.stages) +
           static_cast<size_t>(stage);
  }
  // Enters one half of an action into `table` (and `second`).
  void enter(int32_t index, const char* letter, int32_t micro_batch, int32_t stage, const OnError& on_error,
             std::vector<int32_t>* table, std::vector<int32_t>* second = nullptr);

  const Schedule& schedule_;
  std::vector<Action> actions_;   // by index
  std::vector<int32_t> first_;    // by rank, then the end
  std::vector<int32_t> rank_of_;  // by index
  std::vector<int32_t> forward_, input_grad_, weight_grad_;
};

// Indices of the actions that must end before an action begins, on its own stage and on others (whose results
// may arrive as messages). FB has those of its F and of its B.
struct Needs {
  int32_t count = 0;
  int32_t of[3] = {};
  void add(int32_t index) { of[count++] = index; }
};
Needs needs_of(const ActionTable& table, int32_t index);

}  // namespace strata::parallel
