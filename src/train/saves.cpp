#include "train/saves.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "observe/ledger.h"
#include "plan/risk.h"
#include "program/memory_report.h"

namespace strata::training {
namespace {

// A separate group: the exchanges of saves run concurrently with those of training.
std::unique_ptr<comm::Communicator> group_for(comm::World& world) {
  std::vector<int> everybody(static_cast<size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  return world.group(everybody, "saves");
}

}  // namespace

double save_interval(double cost, std::optional<double> mean_time_between_failures) {
  constexpr double kLongest = 1800;
  if (!mean_time_between_failures || cost <= 0) return config::auto_checkpoint_seconds(cost);
  return std::min(kLongest, planning::daly_interval(cost, *mean_time_between_failures));
}

template <typename Work>
auto Saves::waiting(const Work& work) {
  struct Count {
    Saves& saves;
    double begin = monotonic_seconds();
    ~Count() {
      const double seconds = monotonic_seconds() - begin;
      saves.held_up_ += seconds;
      saves.waited_ += seconds;
    }
  } count{*this};
  return work();
}

Saves::Saves(FileSystem& files, RunStore& store, const program::Executor& executor,
             const config::Interval& interval, Reporter& reporter, std::function<void(int64_t)> saved)
    : store_(store),
      reporter_(reporter),
      saved_(std::move(saved)),
      group_(group_for(executor.ranks().world())),
      // Staging memory for data not yet read when an update begins.
      saving_(files, store.checkpoints(), *group_, program::save_staging_bytes(executor.set())),
      due_(interval, [failures = observe::mean_time_between_failures(
                          observe::read_ledger(store.folder() / "ledger.jsonl"))](double cost) {
        return save_interval(cost, failures);
      }) {}

void Saves::begin(const RunStore::Save& save) {
  end();
  held_up_ = 0;
  step_ = save.state.step;
  waiting([&] { saving_.begin(store_.content_of(save), [this, step = step_] { saved_(step); }); });
  due_.done();
}

void Saves::end() {
  const auto outcome = waiting([&] { return saving_.finish(); });
  if (!outcome) return;
  due_.costs(held_up_ + outcome->cpu_seconds);
  for (const std::string& warning : outcome->saved.warnings) log_warning("{}", warning);
  reporter_.event("save", step_,
                  {{"seconds", outcome->seconds},
                   {"bytes", static_cast<int64_t>(outcome->saved.bytes)},
                   {"held_up", held_up_}});
}

void Saves::before_update() {
  waiting([&] { saving_.before_update(); });
}

double Saves::take_waited() {
  return std::exchange(waited_, 0.0);
}

}  // namespace strata::training
