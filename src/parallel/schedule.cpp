#include "parallel/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace strata::parallel {

const char* letters_of(ActionKind kind) {
  constexpr std::array<const char*, kActionKinds> kLetters = {"F", "I", "W", "B", "FB"};
  return kLetters[static_cast<size_t>(kind)];
}

std::string str(const Action& action) {
  if (action.kind == ActionKind::kForwardBackward) {
    return fmt::format("F{}@{}&B{}@{}", action.micro_batch, action.stage, action.backward_micro_batch,
                       action.backward_stage);
  }
  return fmt::format("{}{}@{}", letters_of(action.kind), action.micro_batch, action.stage);
}

std::vector<int32_t> Schedule::stages_of(int32_t rank) const {
  std::vector<int32_t> held;
  for (int32_t stage = 0; stage < stages; ++stage) {
    if (rank_of_stage[static_cast<size_t>(stage)] == rank) held.push_back(stage);
  }
  return held;
}

std::vector<int32_t> Schedule::chunks() const {
  std::vector<int32_t> chunk, held(ranks.size(), 0);
  for (const int32_t rank : rank_of_stage) chunk.push_back(held[static_cast<size_t>(rank)]++);
  return chunk;
}

std::string sizes_text(const Schedule& schedule) {
  const auto counted = [](int32_t n, const char* one, const char* several) {
    return fmt::format("{} {}{}", n, one, n == 1 ? "" : several);
  };
  return fmt::format("{} on {}, {}", counted(schedule.stages, "stage", "s"),
                     counted(schedule.rank_count(), "rank", "s"),
                     counted(schedule.micro_batches, "micro-batch", "es"));
}

std::vector<int32_t> looped_stages(int32_t stages, int32_t ranks) {
  std::vector<int32_t> rank_of_stage(static_cast<size_t>(stages));
  for (int32_t stage = 0; stage < stages; ++stage) rank_of_stage[static_cast<size_t>(stage)] = stage % ranks;
  return rank_of_stage;
}

std::vector<int32_t> folded_stages(int32_t ranks) {
  std::vector<int32_t> rank_of_stage(static_cast<size_t>(2 * ranks));
  for (int32_t stage = 0; stage < 2 * ranks; ++stage)
    rank_of_stage[static_cast<size_t>(stage)] = std::min(stage, 2 * ranks - 1 - stage);
  return rank_of_stage;
}

bool adds_in_order(const Schedule& schedule) {
  std::vector<int32_t> last(static_cast<size_t>(schedule.stages), -1);  // micro-batch added last
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) {
      const bool is_pair = action.kind == ActionKind::kForwardBackward;
      if (!is_pair && action.kind != ActionKind::kBackward && action.kind != ActionKind::kWeightGrad)
        continue;
      const int32_t micro_batch = is_pair ? action.backward_micro_batch : action.micro_batch;
      int32_t& before = last[static_cast<size_t>(is_pair ? action.backward_stage : action.stage)];
      if (micro_batch < before) return false;
      before = micro_batch;
    }
  }
  return true;
}

}  // namespace strata::parallel
