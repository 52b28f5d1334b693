#include "library/schedule_times.h"

#include <algorithm>

#include "base/error.h"
#include "config/resolve.h"
#include "program/pipeline.h"
#include "program/price.h"

namespace strata::library {
namespace {

using program::Segment;

parallel::ActionKind kind_of(Segment segment) {
  switch (segment) {
    case Segment::kForward:
      return parallel::ActionKind::kForward;
    case Segment::kInputGrad:
      return parallel::ActionKind::kInputGrad;
    case Segment::kWeightGrad:
      return parallel::ActionKind::kWeightGrad;
    case Segment::kBackward:
      return parallel::ActionKind::kBackward;
    default:
      throw InternalError("[strata explain] {} does not belong to a micro-batch", program::name_of(segment));
  }
}

}  // namespace

parallel::Schedule schedule_of(const program::ProgramSet& set) {
  if (set.options.pipeline != nullptr) return set.options.pipeline->schedule;
  const program::Program& program = set.programs[config::kTrainProgram];
  parallel::Schedule schedule{.name = "1f1b",
                              .stages = 1,
                              .micro_batches = static_cast<int32_t>(program.request.micro_batches),
                              .rank_of_stage = {0},
                              .ranks = {{}}};
  for (const program::Action& action : program.script) {
    if (program::is_of_micro_batch(action.segment))
      schedule.ranks[0].push_back({kind_of(action.segment), action.micro_batch, 0});
  }
  return schedule;
}

parallel::Simulation expected_times(const std::vector<Programs>& places, const hardware::Machine& machine) {
  const parallel::Schedule schedule = schedule_of(*places.front());
  // For what ranks hold, which depends on the order only.
  parallel::Simulation times = parallel::simulate(schedule, parallel::even_costs(schedule));
  const program::StepPrice price = program::price_step(places, config::kTrainProgram, machine);
  times.makespan = 0;
  for (size_t r = 0; r < times.ranks.size(); ++r) {
    parallel::RankTimes& rank = times.ranks[r];
    const program::CompileOptions& options = places[r]->options;
    std::vector<int32_t> places_of_actions;
    if (options.pipeline != nullptr)
      places_of_actions = program::places_in_order(*options.pipeline, options.backward);
    rank.busy = 0;
    for (size_t i = 0; i < rank.start.size(); ++i) {
      size_t first = i, last = i;
      if (!places_of_actions.empty()) {
        first = static_cast<size_t>(places_of_actions[i]);
        last = static_cast<size_t>(places_of_actions[i + 1]) - 1;
      }
      rank.start[i] = 1e3 * price.ranks[r].actions[first].begin;
      rank.end[i] = 1e3 * price.ranks[r].actions[last].end;
      rank.busy += rank.end[i] - rank.start[i];
      times.makespan = std::max(times.makespan, rank.end[i]);
    }
  }
  return times;
}

}  // namespace strata::library
