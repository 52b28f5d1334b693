#include "train/stopping.h"

#include <fmt/core.h>

#include <cstdlib>
#include <limits>

#include "base/clock.h"
#include "base/signals.h"
#include "comm/exchange.h"

namespace strata::training {
namespace {

// Seconds left for the run: run.max_time, else the scheduler's limit if there is one, else infinite.
double time_limit(const config::RunConfig& config) {
  if (!config.run.max_time.is_word()) return (*config.run.max_time).seconds;
  if (const char* end = std::getenv("SLURM_JOB_END_TIME")) {
    // Two minutes to finish the step and save.
    return std::strtod(end, nullptr) - unix_seconds() - 120;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

Stopping::Stopping(const std::function<bool()>& stop, const RunInputs& inputs)
    : stop_(stop), ranks_(inputs.ranks), end_time_(monotonic_seconds() + time_limit(inputs.config)) {}

void Stopping::ask(RankReport& mine) const {
  mine.stops = stop_();
  mine.is_out_of_time = monotonic_seconds() > end_time_;
}

void Stopping::hear(const std::vector<RankReport>& all) {
  asked_ = asked_ || any(all, &RankReport::stops);
  out_of_time_ = any(all, &RankReport::is_out_of_time);
}

bool Stopping::ask_all() {
  if (!asked_) asked_ = comm::max_over(ranks_.all(), stop_() ? 1 : 0) > 0;
  return asked_;
}

std::optional<RunEnd> Stopping::end() const {
  if (asked_) return RunEnd::kInterrupted;
  if (out_of_time_) return RunEnd::kTimeLimit;
  return std::nullopt;
}

void StopText::set(int64_t saved_step) const {
  if (!stands_in_for_) return;
  set_stop_text(saved_step == 0
                    ? std::string("stopped: nothing is saved yet; the same command starts over")
                    : fmt::format("stopped: step {} is saved in {}; run the same command again to resume",
                                  saved_step, folder_.string()),
                *stands_in_for_);
}

void StopText::clear() const {
  if (stands_in_for_) set_stop_text("");
}

}  // namespace strata::training
