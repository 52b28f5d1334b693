#include "library/schedule_costs.h"

#include "base/error.h"
#include "config/resolve.h"
#include "program/pipeline.h"
#include "program/predict.h"

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

void add_expected_costs(const program::ProgramSet& set, size_t index, const hardware::DeviceSpec& device,
                        parallel::Costs& costs) {
  const program::Program& program = set.programs[index];
  // Uses the list that adds to accumulators, as all micro-batches except the first do.
  const bool accumulates = program.request.micro_batches > 1;
  const auto milliseconds = [&](const program::SegmentAt& segment) {
    double sum = 0;
    if (program.segment(segment, accumulates).empty()) return sum;
    for (const program::Expected& each : program::predict(program, segment, accumulates, device))
      sum += 1e3 * each.seconds;
    return sum;
  };
  const auto stages =
      set.options.pipeline != nullptr ? set.options.pipeline->stages() : std::vector<int32_t>{0};
  for (int32_t chunk = 0; chunk < program.chunks(); ++chunk) {
    const auto stage = static_cast<size_t>(stages[static_cast<size_t>(chunk)]);
    costs.stages.resize(std::max(costs.stages.size(), stage + 1));
    // The time of B is listed under I.
    costs.stages[stage] = {
        milliseconds({Segment::kForward, chunk}),
        milliseconds({Segment::kBackward, chunk}) + milliseconds({Segment::kInputGrad, chunk}),
        milliseconds({Segment::kWeightGrad, chunk})};
  }
}

}  // namespace strata::library
