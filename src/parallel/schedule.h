// A pipeline schedule as data: for each rank of the pipeline the list of its actions of a step, in order.
// Nothing here knows a device, a model or how messages are sent.
//
// A model is cut into `stages`, which a micro-batch passes in ascending order forward and in descending order
// backward. A rank holds one stage or several ("chunks"). What passes between stages of two ranks is a
// message (messages.h).
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
  kForwardBackward,  // FB: F of one micro-batch beside B of another, neither waiting for the other
};
inline constexpr int kActionKinds = 5;
// "F", "I", "W", "B", "FB".
const char* letters_of(ActionKind kind);

// One stage of one micro-batch, both counted from 0. FB has two: what goes forward, and what goes backward.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int32_t micro_batch = 0, stage = 0;
  int32_t backward_micro_batch = -1, backward_stage = -1;  // of FB alone
  bool operator==(const Action&) const = default;
};
// "F3@1": micro-batch 3 at stage 1; "F3@1&B0@2".
std::string str(const Action& action);

// Micro-batches times stages: more than any run has, and few enough that indices of actions keep within 32
// bits.
inline constexpr int64_t kMostCells = int64_t{1} << 26;

struct Schedule {
  std::string name = {};
  int32_t stages = 0;
  int32_t micro_batches = 0;
  std::vector<int32_t> rank_of_stage = {};      // by stage
  std::vector<std::vector<Action>> ranks = {};  // by rank, in order

  int32_t rank_count() const { return static_cast<int32_t>(ranks.size()); }
  std::vector<int32_t> stages_of(int32_t rank) const;  // in ascending order
  std::vector<int32_t> chunks() const;                 // by stage: its place among those of its rank
  bool operator==(const Schedule&) const = default;
};

// "4 stages on 2 ranks, 8 micro-batches".
std::string sizes_text(const Schedule& schedule);

// Where stages lie, by stage. Looped: stage s on rank s mod ranks. Folded, for two stages a rank: on the way
// back, so that rank r has stages r and 2 ranks - 1 - r, and rank 0 both ends of the model.
std::vector<int32_t> looped_stages(int32_t stages, int32_t ranks);
std::vector<int32_t> folded_stages(int32_t ranks);

// Whether each stage adds the gradients of its weights up in the order of the micro-batches, so that the sums
// are those of any other schedule that does, bit for bit.
bool adds_in_order(const Schedule& schedule);

}  // namespace strata::parallel
