// A pipeline schedule as data: for each rank, the ordered list of its actions in a step. Independent of
// devices, models and the transport of messages.
//
// A model is split into `stages`, which a micro-batch passes in ascending order forward and in descending
// order backward. A rank holds one or several stages ("chunks"). Data that crosses from a stage to one on
// another rank is a message (messages.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata::parallel {

enum class ActionKind : uint8_t {
  kForward,          // F
  kInputGrad,        // I: the gradient of the stage's input
  kWeightGrad,       // W: the gradients of the stage's weights
  kBackward,         // B: I and W in one
  kForwardBackward,  // FB: F of one micro-batch overlapped with B of another
};
inline constexpr int kActionKinds = 5;
// "F", "I", "W", "B", "FB".
const char* letters_of(ActionKind kind);

// One stage of one micro-batch, both counted from 0. FB also has those of its B.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int32_t micro_batch = 0, stage = 0;
  int32_t backward_micro_batch = -1, backward_stage = -1;  // only for FB
  bool operator==(const Action&) const = default;
};
// "F3@1": micro-batch 3 at stage 1; "F3@1&B0@2".
std::string str(const Action& action);

// Limit of micro-batches times stages: above any real run, and low enough that action indices fit in 32 bits.
inline constexpr int64_t kMostCells = int64_t{1} << 26;

struct Schedule {
  std::string name = {};
  int32_t stages = 0;
  int32_t micro_batches = 0;
  std::vector<int32_t> rank_of_stage = {};      // by stage
  std::vector<std::vector<Action>> ranks = {};  // by rank, in order

  int32_t rank_count() const { return static_cast<int32_t>(ranks.size()); }
  std::vector<int32_t> stages_of(int32_t rank) const;  // in ascending order
  std::vector<int32_t> chunks() const;                 // by stage: its index among its rank's stages
  bool operator==(const Schedule&) const = default;
};

// "4 stages on 2 ranks, 8 micro-batches".
std::string sizes_text(const Schedule& schedule);

// The rank of each stage. Looped: stage s is on rank s mod ranks. Folded, for two stages per rank: rank r has
// stages r and 2 ranks - 1 - r, so rank 0 has both ends of the model.
std::vector<int32_t> looped_stages(int32_t stages, int32_t ranks);
std::vector<int32_t> folded_stages(int32_t ranks);

// Whether each stage accumulates its weight gradients in the order of the micro-batches. All schedules that
// do yield the same sums, bit for bit.
bool adds_in_order(const Schedule& schedule);

}  // namespace strata::parallel
