// The pipeline that the compiler makes for a layout: the layers of each stage and, by walking the schedule,
// how many micro-batches each rank holds (parallel/stage_layout.h, parallel/schedules.h,
// parallel/simulate.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "parallel/simulate.h"
#include "parallel/stage_layout.h"
#include "plan/layout.h"

namespace strata::planning {

// Costs of the parts of a model for one token, in FLOPs: its stages are balanced by them.
struct PartFlops {
  std::vector<double> layers = {};
  double head = 0, embedding = 0;
  friend auto operator<=>(const PartFlops&, const PartFlops&) = default;
};

// What a schedule makes of a rank.
struct WalkedSchedule {
  // In F, B, I and W. With more than three micro-batches for each rank none holds more.
  parallel::Schedule schedule;
  std::vector<parallel::Action> order;       // of all ranks, each after those that it needs
  std::vector<parallel::LiveCounts> live;    // by rank
  std::vector<std::vector<int32_t>> stages;  // by rank
  int32_t send_buffers = 2;                  // for each peer and direction
};

// Cached; threads may call them. Of at most `most` micro-batches for each rank; a layout's are rounded down.
inline constexpr int64_t kSteadyMicroBatches = 3;
std::shared_ptr<const WalkedSchedule> walk_schedule(const Layout& layout, int64_t most = kSteadyMicroBatches);
// Seconds from its first action to its last, as parallel::simulate() has them; linear in the actions.
double walked_seconds(const WalkedSchedule& walked, const parallel::Costs& costs);
std::shared_ptr<const parallel::StageLayout> stages_of(const PartFlops& parts, int32_t stages);

// Whether the backward pass is split into input gradients and weight gradients.
bool splits_backward(const Layout& layout);
std::string_view schedule_name(const Layout& layout);  // of parallel/schedules.h

}  // namespace strata::planning
