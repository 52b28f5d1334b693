// Where each F, I and W of a schedule stands: what messages, checks and the simulator look up. For this room.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace strata::parallel {

// Actions of all ranks in one row, rank by rank; an index into it names an action.
class ActionTable {
 public:
  static constexpr int32_t kNone = -1;
  using OnError = std::function<void(std::string)>;

  // Tells each action that is not of this schedule, stands on a rank that has not its stage, or is there
  // twice; such are in no look-up. `schedule` must stay.
  ActionTable(const Schedule& schedule, const OnError& on_error);
  // Of a schedule that is known to have no fault: else InternalError.
  explicit ActionTable(const Schedule& schedule);

  const Schedule& schedule() const { return schedule_; }
  int32_t size() const { return first_.back(); }
  int32_t first_of(int32_t rank) const { return first_[static_cast<size_t>(rank)]; }  // `ranks` too: the end
  int32_t rank_of(int32_t index) const { return rank_of_[static_cast<size_t>(index)]; }
  const Action& action(int32_t index) const { return actions_[static_cast<size_t>(index)]; }

  // The index of a stage's F, of its I (or B, or FB), of its W (or B, or FB); kNone where it is missing.
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
  // What one half of an action does. Takes its place in `table` (and in `second`).
  void take(int32_t index, const char* letter, int32_t micro_batch, int32_t stage, const OnError& on_error,
            std::vector<int32_t>* table, std::vector<int32_t>* second = nullptr);

  const Schedule& schedule_;
  std::vector<Action> actions_;   // by index
  std::vector<int32_t> first_;    // by rank, and the end
  std::vector<int32_t> rank_of_;  // by index
  std::vector<int32_t> forward_, input_grad_, weight_grad_;
};

// The actions that must end before an action begins, as indices: of other stages (for which there may be a
// message) and of its own stage. FB has both of F and both of B.
struct Needs {
  int32_t count = 0;
  int32_t of[3] = {};
  void add(int32_t index) { of[count++] = index; }
};
Needs needs_of(const ActionTable& table, int32_t index);

}  // namespace strata::parallel
