// strata bench saves: the cost of checkpoints, saved during training or while it waits.
#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <cmath>

#include "base/clock.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "checkpoint/background_save.h"
#include "program/memory_report.h"
#include "program/update.h"
#include "train/run_store.h"

namespace strata::benchmarks {
namespace {

constexpr int kSaves = 20;
constexpr double kStepSeconds = 6;
constexpr int64_t kMostSteps = 12;  // per turn

enum Kind : size_t { kNone, kWaiting, kConcurrent, kKinds };

// Runs the steps of a turn, and saves the state before the first.
class Turns {
 public:
  explicit Turns(BenchRun& run)
      : run_(run),
        store_(posix_file_system(), run.folder() / "run"),
        saving_(posix_file_system(), store_.checkpoints(), {},
                program::save_staging_bytes(run.executor().set())) {}

  // Seconds until the last step is done and the save is durable.
  double take(Kind kind, int64_t steps) {
    const double begin = monotonic_seconds();
    if (kind != kNone) saving_.begin(content());
    if (kind == kWaiting) finish();
    for (int64_t step = 0; step < steps; ++step) {
      write_hyper(run_.executor());
      for (const program::Action& action : run_.executor().program(config::kTrainProgram).script) {
        if (action.segment == program::Segment::kUpdate) saving_.before_update();
        run_.executor().run(config::kTrainProgram, action);
      }
    }
    finish();
    return monotonic_seconds() - begin;
  }

  // Outcome of the newest save.
  const checkpoint::BackgroundSave::Outcome& outcome() const { return outcome_; }

 private:
  checkpoint::CheckpointContent content() {
    training::TrainingState state;
    state.step = ++saves_;
    return store_.content_of({.model = run_.model,
                              .executor = run_.executor(),
                              .tokenizer = nullptr,
                              .state = state,
                              .health = {.loss = 1, .grad_norm = 1, .finite = true, .metrics = {}},
                              .retention = {.keep_last = 1}});
  }
  void finish() {
    if (auto outcome = saving_.finish()) outcome_ = std::move(*outcome);
  }

  BenchRun& run_;
  training::RunStore store_;
  checkpoint::BackgroundSave saving_;
  checkpoint::BackgroundSave::Outcome outcome_;
  int64_t saves_ = 0;
};

}  // namespace

void bench_saves(BenchContext& context) {
  const std::vector<std::string> small{"training.global_batch_size=8", "training.micro_batch_size=8"};
  BenchRun run(context.sets.empty() ? small : context.sets);
  const double step = run.step_seconds(kStepSeconds);
  Turns turns(run);
  turns.take(kWaiting, 1);
  // A turn is twice as long as a save, so that it would hide one on a disk half as fast.
  const auto steps =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(2 * turns.outcome().seconds / step)), 2, kMostSteps);
  const uint64_t bytes = turns.outcome().saved.bytes;
  std::array<double, kKinds> all{};
  std::array<std::vector<double>, kKinds> more;  // seconds beyond the same steps without a save
  std::vector<double> cpu_seconds;
  for (size_t round = 0; round < kSaves; ++round) {
    std::array<double, kKinds> seconds{};
    for (size_t i = 0; i < kKinds; ++i) {  // kinds take turns to be first
      const auto kind = static_cast<Kind>((round + i) % kKinds);
      seconds[kind] = turns.take(kind, steps);
      all[kind] += seconds[kind];
      if (kind == kConcurrent) cpu_seconds.push_back(turns.outcome().cpu_seconds);
    }
    for (const Kind kind : {kWaiting, kConcurrent}) more[kind].push_back(seconds[kind] - seconds[kNone]);
  }
  const double waiting = median(more[kWaiting]), concurrent = median(more[kConcurrent]);
  const int64_t staging = program::save_staging_bytes(run.executor().set());
  context.print("\n{}: {:.0f} ms per step, {} steps per save\n", run.describe(), 1e3 * step, steps);
  context.print("  a checkpoint is {}; {} of memory for data not yet saved at the next update\n",
                human_bytes(static_cast<double>(bytes)), human_bytes(static_cast<double>(staging)));
  const auto row = [&](const char* what, double once, double together) {
    context.print("  {:<34} {:>8.3f} s {:>8.2f} s\n", what, once, together);
  };
  context.print("  {:<34} {:>10} {:>10}\n", "", "median", fmt::format("{} saves", kSaves));
  row("training waits for the save", waiting, all[kWaiting] - all[kNone]);
  row("the save runs during training", concurrent, all[kConcurrent] - all[kNone]);
  context.print("  {:<34} {:>8.3f} s\n", "  processor time of the save thread", median(cpu_seconds));
  context.print("  during training a save costs {:.0f} % of the time that waiting for it costs\n",
                100 * concurrent / waiting);
  context.result = {
      {"step_seconds", step},
      {"steps_per_save", steps},
      {"saves", kSaves},
      {"checkpoint_bytes", bytes},
      {"staging_bytes", staging},
      {"waiting_seconds", waiting},
      {"beside_seconds", concurrent},
      {"beside_cpu_seconds", median(cpu_seconds)},
      {"all_seconds", {{"none", all[kNone]}, {"waiting", all[kWaiting]}, {"beside", all[kConcurrent]}}},
      {"share", concurrent / waiting}};
}

}  // namespace strata::benchmarks
