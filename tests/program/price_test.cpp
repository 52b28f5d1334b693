// Steps in time, against the schedule's own simulator and against bounds that hold whatever overlaps.
#include "program/price.h"

#include <gtest/gtest.h>

#include "fixtures/tiny_program.h"
#include "parallel/simulate.h"
#include "pipeline_model.h"
#include "program/predict.h"
#include "program/traffic.h"

namespace strata::program {
namespace {

using graph::Axis;
using hardware::Precision;

// A device that computes and is linked at these rates. `launch`: an accelerator's.
hardware::Machine machine(double bytes_per_s, double latency = 0, double launch = 0) {
  hardware::DeviceSpec device;
  device.name = "a test";
  device.threads = 1;
  device.gemm_flops[Precision::kFp32] = device.gemm_flops[Precision::kBf16] = 1e9;
  device.memory_bytes_per_s = 1e9;
  device.launch_seconds = launch;
  hardware::Machine made(device);
  const auto figure = [](double value) { return hardware::Figure{value, "a test"}; };
  made.links = {{.name = "link",
                 .bandwidth = figure(bytes_per_s),
                 .achievable = figure(1),
                 .startup = figure(latency)}};
  return made;
}
constexpr double kFast = 1e18;

double communication(const std::shared_ptr<const ProgramSet>& set, const hardware::Machine& on) {
  double seconds = 0;
  const ActionCosts costs(set->programs[0], on, set->options.reduce_dtype);
  for (const auto& kind : costs.kinds()) {
    for (const Expected& one : kind.instructions) seconds += static_cast<double>(kind.times) * one.exchange;
  }
  return seconds;
}

TEST(PriceStep, OfOneRankIsTheSumOfItsInstructions) {
  const auto set = compile({tiny_request(3)}, tiny_options("llama3-5m"));
  const auto on = machine(kFast);
  const std::shared_ptr<const ProgramSet> places[] = {set};
  const StepPrice price = price_step(places, 0, on);
  const double sum = predict_step(set->programs[0], on).seconds;
  EXPECT_GT(sum, 0);
  EXPECT_NEAR(price.seconds, sum, 1e-9 * sum);
  EXPECT_NEAR(price.ranks[0].computing, sum, 1e-9 * sum);
  EXPECT_EQ(price.bubble_share(), 0);
  EXPECT_EQ(price.ranks[0].actions.size(), set->programs[0].script.size());
}

// What follows the micro-batches, with waiting for other places.
double tail_of(const ProgramSet& set, const PricedRank& rank) {
  double seconds = 0;
  for (size_t i = 0; i < rank.actions.size(); ++i) {
    if (!is_of_micro_batch(set.programs[0].script[i].segment))
      seconds += rank.actions[i].end - rank.actions[i].begin;
  }
  return seconds;
}

class PricedPipeline : public testing::TestWithParam<parallel::ScheduleRequest> {};

// Messages have no size that would matter next to their latency, so that the schedule's simulator with the durations
// of the program's actions has the same times.
TEST_P(PricedPipeline, TakesAsLongAsItsSchedule) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model.layers = 16;
  const parallel::ScheduleRequest& request = GetParam();
  options.mesh = graph::Mesh::of(1, 1, 1, 1, request.ranks);
  const Pipeline pipeline = pipeline_of(request, options.model);
  std::vector<std::shared_ptr<const ProgramSet>> places;
  for (int32_t place = 0; place < request.ranks; ++place)
    places.push_back(compile({{.kind = Kind::kTrain,
                               .sequences = 1,
                               .sequence_length = 8,
                               .micro_batches = request.micro_batches}},
                             at_place(options, pipeline, place)));
  for (const double latency : {0.0, 2e-3}) {
    const hardware::Machine on = machine(kFast, latency);
    parallel::Costs costs;
    costs.message = latency;
    costs.stages.resize(static_cast<size_t>(pipeline.schedule.stages));
    double tail = 1;
    const StepPrice price = price_step(places, 0, on);
    for (int32_t place = 0; place < request.ranks; ++place) {
      const ProgramSet& set = *places[static_cast<size_t>(place)];
      const PricedRank& rank = price.ranks[static_cast<size_t>(place)];
      const auto stages = set.options.pipeline->stages();
      for (size_t i = 0; i < rank.actions.size(); ++i) {
        const Action& action = set.programs[0].script[i];
        if (!is_of_micro_batch(action.segment)) continue;
        parallel::StageCost& cost =
            costs.stages[static_cast<size_t>(stages[static_cast<size_t>(action.chunk)])];
        const double seconds = rank.actions[i].end - rank.actions[i].begin;
        if (action.segment == Segment::kForward) cost.forward = seconds;
        if (action.segment == Segment::kWeightGrad) cost.weight_grad = seconds;
        if (action.segment == Segment::kInputGrad) cost.input_grad = seconds;
        if (action.segment == Segment::kBackward) {
          cost.input_grad = seconds;
          cost.weight_grad = 0;
        }
      }
      tail = std::min(tail, tail_of(set, rank));  // the last place waits for none
    }
    const parallel::Simulation times = parallel::simulate(pipeline.schedule, costs);
    // The first micro-batch overwrites accumulators, which the simulator's costs do not know.
    const double expected = times.makespan + tail;
    EXPECT_LE(price.seconds, 1.02 * expected) << latency;
    // The simulator sends what a pair makes when both halves are done, programs when each is.
    if (latency == 0 || request.name != "dualpipev") {
      EXPECT_GE(price.seconds, 0.98 * expected) << latency;
    }
    if (latency > 0) {
      EXPECT_GT(price.ranks[0].exposed[Axis::kPipeline], 0);
    }
    // With latency a part of the waiting is the messages'.
    if (latency == 0) {
      EXPECT_NEAR(price.bubble_share(), times.bubble_share() * times.makespan / price.seconds, 0.03);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PricedPipeline,
                         testing::Values(parallel::ScheduleRequest{"gpipe", 3, 5, 1},
                                         parallel::ScheduleRequest{"1f1b", 4, 8, 1},
                                         parallel::ScheduleRequest{"interleaved", 4, 8, 2},
                                         parallel::ScheduleRequest{"zb_h1", 4, 8, 1},
                                         parallel::ScheduleRequest{"zbv", 4, 8, 1},
                                         parallel::ScheduleRequest{"dualpipev", 2, 6, 1}),
                         [](const auto& one) { return one.param.name + "_" + std::to_string(one.index); });

struct Layout {
  const char* name;
  graph::Mesh mesh;
  int zero = 0;
  Axis axis;
};

class PricedLayout : public testing::TestWithParam<Layout> {
 protected:
  static std::shared_ptr<const ProgramSet> compiled() {
    CompileOptions options = tiny_options("llama3-5m");
    options.model.heads = options.model.kv_heads = 4;
    options.mesh = GetParam().mesh;
    options.zero = GetParam().zero;
    options.prefetch = 1;
    return compile({tiny_request(2)}, options);
  }
};

TEST_P(PricedLayout, LiesBetweenPerfectAndNoOverlap) {
  const auto set = compiled();
  const std::shared_ptr<const ProgramSet> places[] = {set};
  const double computing = price_step(places, 0, machine(kFast)).ranks[0].computing;
  double before = 0;
  for (const double bandwidth : {kFast, 1e9, 1e8, 1e7}) {
    for (const double launch : {0.0, 1e-12}) {
      const hardware::Machine on = machine(bandwidth, 0, launch);
      const StepPrice price = price_step(places, 0, on);
      const double moving = communication(set, on);
      EXPECT_GE(price.seconds, std::max(computing, moving) * (1 - 1e-9));
      EXPECT_LE(price.seconds, (computing + moving) * (1 + 1e-9));
      EXPECT_NEAR(price.ranks[0].communicating, moving, 1e-9 * moving + 1e-15);
      EXPECT_NEAR(price.seconds, computing + price.ranks[0].exposed[GetParam().axis], 1e-6 * price.seconds);
      if (launch == 0) {
        EXPECT_GE(price.seconds, before * (1 - 1e-9)) << "slower links";
        before = price.seconds;
      }
    }
  }
}

// Where exchanges take all of the device's time, nothing is hidden.
TEST_P(PricedLayout, HidesNothingWhereTheHostMovesTheBytes) {
  const auto set = compiled();
  const std::shared_ptr<const ProgramSet> places[] = {set};
  hardware::Machine on = machine(1e8);
  on.links[0].compute_share = {1, "a test"};
  const StepPrice price = price_step(places, 0, on);
  EXPECT_NEAR(price.seconds, predict_step(set->programs[0], on).seconds, 1e-6 * price.seconds);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PricedLayout,
                         testing::Values(Layout{"replicate", graph::Mesh::of(4, 1, 1, 1), 0,
                                                Axis::kReplicate},
                                         Layout{"zero1", graph::Mesh::of(1, 4, 1, 1), 1, Axis::kShard},
                                         Layout{"zero3", graph::Mesh::of(1, 4, 1, 1), 3, Axis::kShard},
                                         Layout{"tensor", graph::Mesh::of(1, 1, 1, 2), 0, Axis::kTensor},
                                         Layout{"context", graph::Mesh::of(1, 1, 2, 1), 0, Axis::kContext}),
                         [](const auto& one) { return one.param.name; });

TEST(PriceStep, ReportsEverythingInOrderWithinEachQueue) {
  struct Watch final : PriceObserver {
    double last[3] = {};
    int64_t calls = 0;
    void work(int32_t, Queue queue, size_t, size_t, double begin, double end) override {
      double& before = last[static_cast<size_t>(queue)];
      EXPECT_GE(begin, before);
      EXPECT_GT(end, begin);
      before = end;
      ++calls;
    }
  } watch;
  CompileOptions options = tiny_options("llama3-5m");
  options.mesh = graph::Mesh::of(1, 4, 1, 1);
  options.zero = 3;
  const std::shared_ptr<const ProgramSet> places[] = {compile({tiny_request(2)}, options)};
  const StepPrice price = price_step(places, 0, machine(1e8), &watch);
  EXPECT_GT(watch.calls, 0);
  EXPECT_GT(watch.last[1], 0);
  EXPECT_LE(watch.last[0], price.seconds);
}

}  // namespace
}  // namespace strata::program
