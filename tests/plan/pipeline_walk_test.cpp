// Schedules as planning walks them.
#include "plan/pipeline_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/schedules.h"

namespace strata::planning {
namespace {

Layout layout_of(PipelineSchedule schedule, int64_t pipeline, int64_t virtual_stages, double micro_batches) {
  return {.pipeline = pipeline,
          .virtual_stages = virtual_stages,
          .micro_batches = micro_batches,
          .schedule = schedule};
}

TEST(PipelineWalk, TakesAsLongAsSimulated) {
  const std::pair<PipelineSchedule, int64_t> schedules[] = {
      {PipelineSchedule::kGPipe, 1},       {PipelineSchedule::k1F1B, 1},
      {PipelineSchedule::k1F1B, 3},        {PipelineSchedule::kZeroBubble, 1},
      {PipelineSchedule::kZeroBubbleV, 2}, {PipelineSchedule::kVHalf, 2},
      {PipelineSchedule::kVMin, 2},        {PipelineSchedule::kZeroBubble, 2},
      {PipelineSchedule::kDualPipeV, 2}};
  for (const auto& [schedule, stages] : schedules) {
    for (const double m : {8.0, 12.0, 16.0}) {
      const auto walked = walk_schedule(layout_of(schedule, 4, stages, m));
      parallel::Costs costs;
      // Uneven stages.
      for (int32_t stage = 0; stage < walked->schedule.stages; ++stage)
        costs.stages.push_back(
            {.forward = 1 + 0.1 * stage, .input_grad = 1.3, .weight_grad = 0.9 + 0.05 * stage});
      costs.message = 0.2;
      EXPECT_NEAR(walked_seconds(*walked, costs), parallel::simulate(walked->schedule, costs).makespan, 1e-9)
          << schedule_name(layout_of(schedule, 4, stages, m)) << " " << m;
    }
  }
}

// More micro-batches than are walked are not held at the same time.
TEST(PipelineWalk, HoldsNoMoreThanWhenItIsFull) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::k1F1B, PipelineSchedule::kZeroBubble, PipelineSchedule::kZeroBubbleV,
        PipelineSchedule::kVHalf, PipelineSchedule::kVMin, PipelineSchedule::kDualPipeV}) {
    const int64_t stages =
        schedule == PipelineSchedule::k1F1B || schedule == PipelineSchedule::kZeroBubble ? 1 : 2;
    const Layout layout = layout_of(schedule, 8, stages, 80);
    const auto walked = walk_schedule(layout), whole = walk_schedule(layout, 10);
    EXPECT_EQ(walked->schedule.micro_batches, 24);
    EXPECT_EQ(whole->schedule.micro_batches, 80);
    EXPECT_EQ(walked->live, whole->live) << schedule_name(layout);
  }
}

// The compiler splits every backward pass of a schedule that splits any: FB is F, I and W, and nothing is lost.
TEST(PipelineWalk, SplitsPairsAsTheCompilerDoes) {
  using enum parallel::ActionKind;
  const auto walked = walk_schedule(layout_of(PipelineSchedule::kDualPipeV, 4, 2, 12));
  const parallel::Schedule published =
      parallel::make_schedule({.name = "dualpipev", .ranks = 4, .micro_batches = 12});
  for (size_t rank = 0; rank < 4; ++rank) {
    std::vector<std::string> expected, found;
    const auto add = [&](parallel::ActionKind kind, int32_t micro_batch, int32_t stage) {
      expected.push_back(str(parallel::Action{kind, micro_batch, stage}));
    };
    for (const parallel::Action& action : published.ranks[rank]) {
      if (action.kind != kBackward)
        add(action.kind == kForwardBackward ? kForward : action.kind, action.micro_batch, action.stage);
      if (action.kind != kBackward && action.kind != kForwardBackward) continue;
      const bool pair = action.kind == kForwardBackward;
      for (const parallel::ActionKind half : {kInputGrad, kWeightGrad})
        add(half, pair ? action.backward_micro_batch : action.micro_batch,
            pair ? action.backward_stage : action.stage);
    }
    for (const parallel::Action& action : walked->schedule.ranks[rank]) found.push_back(str(action));
    EXPECT_EQ(found, expected) << rank;
    EXPECT_EQ(found.size(), 3u * 2 * 12) << "F, I and W of two stages";
  }
}

TEST(PipelineWalk, StagesAreBalanced) {
  const PartFlops parts{.layers = std::vector<double>(32, 1), .head = 2.5, .embedding = 1e-4};
  const auto stages = stages_of(parts, 2);
  ASSERT_EQ(stages->size(), 2u);
  EXPECT_EQ((*stages)[0].layers, 17);
  EXPECT_EQ((*stages)[1].layers, 15);
  EXPECT_EQ(stages_of(parts, 2), stages) << "kept";
}

}  // namespace
}  // namespace strata::planning
