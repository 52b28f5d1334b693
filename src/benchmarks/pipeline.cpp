// strata bench pipeline: schedules of two ranks against each other, and against their simulation with the
// measured times of F, I and W.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/json.h"
#include "base/parallel.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "config/plan.h"
#include "device/open/open.h"
#include "parallel/simulate.h"
#include "program/initialize.h"
#include "program/pipeline.h"
#include "program/update.h"

namespace strata::benchmarks {
namespace {

using program::Segment;
using program::SegmentAt;

constexpr int kTurns = 7;
constexpr int32_t kRanks = 2;
constexpr const char* kSchedules[] = {"1f1b", "zb_h1", "zbv", "interleaved"};

// The ranks of one schedule.
struct Runs {
  std::shared_ptr<const program::Pipeline> pipeline;
  std::vector<std::shared_ptr<const program::ProgramSet>> sets;  // by rank
  std::vector<double> seconds;                                   // of a step's micro-batches, by turn
  parallel::Costs costs;                                         // measured, in seconds
};

Runs compile_schedule(const std::vector<std::string>& sets, const Path& folder, const std::string& schedule) {
  std::vector<std::string> all{"training.sequence_length=512",
                               "training.global_batch_size=8",
                               "training.micro_batch_size=1",
                               "precision.compute=\"fp32\"",
                               "model.override.vocab_size=1024",
                               "device.threads=1",
                               "parallel.shard=1",
                               "parallel.zero=0",
                               "memory.recompute=\"none\"",
                               "parallel.pipeline=" + std::to_string(kRanks),
                               "parallel.schedule=" + schedule};
  if (schedule == "interleaved") all.emplace_back("parallel.virtual_stages=2");
  all.insert(all.end(), sets.begin(), sets.end());
  const auto plan =
      config::make_plan(bench_config(all, folder), {.files = posix_file_system(),
                                                    .place = {.ranks = kRanks, .local_ranks = kRanks},
                                                    .data = config::PlanOptions::Data::kNone,
                                                    .places = {0, 1}});
  Runs runs;
  for (const auto& [place, compiled] : plan->stages) runs.sets.push_back(compiled.set);
  runs.pipeline = runs.sets.front()->options.pipeline;
  runs.costs.stages.resize(static_cast<size_t>(runs.pipeline->schedule.stages));
  return runs;
}

// Mean seconds per run of a segment's instructions, over both of its variants.
double seconds_of(const program::Executor& executor, const SegmentAt& at) {
  double seconds = 0;
  uint64_t calls = 0;
  for (const bool accumulates : {false, true}) {
    const auto& timings = executor.timings(config::kTrainProgram, at, accumulates);
    for (const program::Timing& one : timings) seconds += one.seconds;
    if (!timings.empty()) calls += timings.front().calls;
  }
  return calls > 0 ? seconds / static_cast<double>(calls) : 0;
}

// One rank of all turns, each of which runs every schedule.
void run_rank(comm::World& world, std::vector<Runs>& all, std::mutex& mutex) {
  set_compute_threads(1);
  const auto rank = static_cast<size_t>(world.rank());
  std::vector<std::unique_ptr<program::Ranks>> ranks;
  std::vector<std::unique_ptr<program::Executor>> executors;
  for (const Runs& one : all) {
    const auto& set = one.sets[rank];
    ranks.push_back(std::make_unique<program::Ranks>(world, set->options));
    executors.push_back(std::make_unique<program::Executor>(
        set, device::open(device::Kind::kCpu, 0, set->options.target.spec.threads), *ranks.back()));
    program::write_coordinates(*executors.back());
    program::initialize_weights(*executors.back(), 1);
    executors.back()->run(config::kTrainProgram, {Segment::kEncode});
  }
  for (int turn = -1; turn < kTurns; ++turn) {  // the first is excluded
    for (size_t i = 0; i < all.size(); ++i) {
      if (turn == 0) executors[i]->reset_timings();
      world.barrier();
      const double begin = monotonic_seconds();
      executors[i]->run_micro_batches(config::kTrainProgram);
      world.barrier();
      if (turn >= 0 && rank == 0) all[i].seconds.push_back(monotonic_seconds() - begin);
    }
  }
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<int32_t> stages = all[i].sets[rank]->options.pipeline->stages();
    for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
      const auto at = [&](Segment segment) {
        return seconds_of(*executors[i], {segment, static_cast<int32_t>(chunk)});
      };
      all[i].costs.stages[static_cast<size_t>(stages[chunk])] = {
          at(Segment::kForward), at(Segment::kBackward) + at(Segment::kInputGrad), at(Segment::kWeightGrad)};
    }
  }
}

}  // namespace

void bench_pipeline(BenchContext& context) {
  const BenchFolder folder(context.sets);
  std::vector<Runs> all;
  for (const char* schedule : kSchedules)
    all.push_back(compile_schedule(context.sets, folder.path(), schedule));
  std::mutex mutex;
  comm::run_local_ranks(kRanks, [&](comm::World& world) { run_rank(world, all, mutex); });
  context.print(
      "\n  {} ranks of one thread, {} micro-batches of one sequence of 512, fp32; medians of {} turns\n",
      kRanks, all.front().pipeline->schedule.micro_batches, kTurns);
  const double expected_reference =
      parallel::simulate(all.front().pipeline->schedule, all.front().costs).makespan;
  for (const Runs& one : all) {
    const parallel::Simulation simulation = parallel::simulate(one.pipeline->schedule, one.costs);
    std::vector<double> shares;
    for (size_t turn = 0; turn < one.seconds.size(); ++turn)
      shares.push_back(one.seconds[turn] / all.front().seconds[turn]);
    const double expected = simulation.makespan / expected_reference, found = median(shares);
    double busy = 0;
    for (const parallel::RankTimes& rank : simulation.ranks) busy += rank.busy;
    context.print(
        "  {:<12} {:>8.1f} ms, {:.1f} % of 1f1b's (simulated from F, I and W {:.1f} %, {:+.1f} points); "
        "bubble {:.1f} % simulated, {:.1f} % measured\n",
        one.pipeline->schedule.name, 1e3 * median(one.seconds), 100 * found, 100 * expected,
        100 * (found - expected), 100 * simulation.bubble_share(),
        100 * (1 - busy / (kRanks * median(one.seconds))));
    context.result[one.pipeline->schedule.name] = {{"seconds", one.seconds},
                                                   {"of_1f1b", found},
                                                   {"expected_of_1f1b", expected},
                                                   {"simulated_seconds", simulation.makespan}};
  }
  context.result["reference_seconds"] = median(all.front().seconds);
}

}  // namespace strata::benchmarks
