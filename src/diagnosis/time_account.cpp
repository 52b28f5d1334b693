#include "diagnosis/time_account.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "diagnosis/series.h"
#include "observe/run_history.h"
#include "plan/risk.h"

namespace strata::diagnosis {
namespace {

// A line of either metrics file.
struct TimedLine {
  enum class Kind {
    kStart,  // of an attempt
    kBegin,  // training begins in an attempt whose start is known
    kStep,
    kStop,
    kSave,
    kOther,
  };
  double time = 0;
  Kind kind = Kind::kOther;
  double seconds = 0;  // of a step; of a start, since its process began
};

// Whether an attempt in the ledger contains a time.
bool is_in_ledger(std::span<const observe::LedgerAttempt> attempts, double time) {
  constexpr double kTolerance = 1e-3;
  return std::any_of(attempts.begin(), attempts.end(), [&](const observe::LedgerAttempt& one) {
    return time >= one.began - kTolerance && time <= one.ended + kTolerance;
  });
}

std::vector<TimedLine> timed_lines(const TimeSources& evidence) {
  std::vector<TimedLine> lines;
  for (const observe::LedgerAttempt& attempt : evidence.attempts) {
    lines.push_back({attempt.began, TimedLine::Kind::kStart});
    if (attempt.ended_cleanly()) lines.push_back({attempt.ended, TimedLine::Kind::kStop});
  }
  for (const observe::MetricsEvent& event : evidence.metrics.events()) {
    using Kind = TimedLine::Kind;
    const std::string& name = event.event;
    if (name == "changed" || name == "reordered") continue;  // written just before the start that made them
    const double time = observe::number_of(event, "time");
    const bool is_known = is_in_ledger(evidence.attempts, time);
    const Kind kind = name == "start" || name == "resume" ? (is_known ? Kind::kBegin : Kind::kStart)
                      : name == "finish" || name == "interrupt" || name == "time_limit"
                          ? (is_known ? Kind::kOther : Kind::kStop)
                      : name == "save" ? Kind::kSave
                                       : Kind::kOther;
    const double before = kind == Kind::kStart ? observe::number_of(event, "process_seconds") : 0;
    lines.push_back({time, kind, std::isfinite(before) ? std::max(0.0, before) : 0});
  }
  const auto add_step = [&](double time, double seconds) {
    lines.push_back({time, TimedLine::Kind::kStep, std::isfinite(seconds) ? std::max(0.0, seconds) : 0});
  };
  const std::span<const double> times = evidence.metrics.column("time");
  const std::span<const double> step_ms = evidence.metrics.column("step_ms");
  for (size_t i = 0; i < times.size(); ++i) add_step(times[i], step_ms.empty() ? 0 : step_ms[i] / 1e3);
  for (const UndoneStep& step : evidence.undone) add_step(step.time, step.seconds);
  std::erase_if(lines, [](const TimedLine& line) { return !std::isfinite(line.time); });
  // Events of one moment keep their order: a start precedes its steps.
  std::stable_sort(lines.begin(), lines.end(),
                   [](const TimedLine& a, const TimedLine& b) { return a.time < b.time; });
  return lines;
}

// Gaps between the end of one start of the program and the first step of the next.
void add_gaps(std::span<const TimedLine> lines, TimeAccount& account) {
  bool stopped = false, waits = false;  // the last start ended as asked; the next has no step yet
  double left = 0;                      // time of the last line before the gap
  std::optional<double> last_save, last_start;
  std::vector<double> intervals;
  for (size_t i = 0; i < lines.size(); ++i) {
    const TimedLine& line = lines[i];
    if (line.kind == TimedLine::Kind::kStart && i > 0) {
      if (stopped) {
        account.paused += std::max(0.0, line.time - line.seconds - lines[i - 1].time);
      } else {
        ++account.failures;
        if (!waits) left = lines[i - 1].time;
        waits = true;
      }
      stopped = false;
    }
    if (line.kind == TimedLine::Kind::kStart || line.kind == TimedLine::Kind::kBegin) {
      last_save.reset();
      last_start = line.time;
    }
    if (line.kind == TimedLine::Kind::kStep && waits) {
      account.restarting += std::max(0.0, line.time - line.seconds - left);
      waits = false;
    }
    if (line.kind == TimedLine::Kind::kStop) stopped = true;
    if (line.kind == TimedLine::Kind::kSave) {
      if (const std::optional<double> from = last_save ? last_save : last_start; from && line.time > *from)
        intervals.push_back(line.time - *from);
      last_save = line.time;
    }
  }
  if (!intervals.empty()) account.save_interval = median_of(std::move(intervals));
}

std::optional<double> share_of(double part, double whole) {
  if (!(whole > 0) || !(part >= 0)) return std::nullopt;
  return std::min(1.0, part / whole);
}

void add_ledger(std::span<const observe::LedgerAttempt> attempts, TimeAccount& account) {
  double recovery = 0, lost = 0, recoveries = 0, from_copies = 0;
  for (const observe::LedgerAttempt& one : attempts) {
    if (!one.recovery_s) continue;
    recovery += *one.recovery_s;
    recoveries += 1;
    if (one.from != observe::AttemptFrom::kCopies) continue;
    lost += one.lost_s;
    from_copies += 1;
  }
  if (recoveries > 0) account.recovery = recovery / recoveries;
  // Only if it is the rule: a mixture has no one interval.
  if (from_copies > 0 && 2 * from_copies > recoveries) account.lost_from_copies = lost / from_copies;
}

}  // namespace

TimeAccount time_account_of(const Evidence& evidence) {
  return time_account_of(
      TimeSources{.metrics = evidence.metrics, .undone = evidence.undone, .attempts = evidence.attempts});
}

TimeAccount time_account_of(const TimeSources& evidence) {
  TimeAccount account;
  const std::vector<TimedLine> lines = timed_lines(evidence);
  if (!lines.empty()) {
    account.elapsed = lines.back().time - lines.front().time;
    if (lines.front().kind == TimedLine::Kind::kStep) account.elapsed += lines.front().seconds;
  }
  for (const double milliseconds : evidence.metrics.column("step_ms")) {
    if (milliseconds > 0 && std::isfinite(milliseconds)) account.productive += milliseconds / 1e3;
  }
  for (const UndoneStep& step : evidence.undone) {
    if (step.seconds > 0 && std::isfinite(step.seconds)) account.undone += step.seconds;
  }
  add_gaps(lines, account);
  std::vector<double> saves;
  for (const observe::MetricsEvent& event : evidence.metrics.events()) {
    if (event.event == "save") saves.push_back(observe::number_of(event, "held_up"));
  }
  if (std::vector<double> known = finite_values(saves); !known.empty())
    account.save = median_of(std::move(known));
  add_ledger(evidence.attempts, account);
  return account;
}

std::optional<double> TimeAccount::goodput() const {
  return productive > 0 ? share_of(productive, elapsed) : std::nullopt;
}

std::optional<double> TimeAccount::ettr() const {
  return productive > 0 ? share_of(productive, elapsed - paused) : std::nullopt;
}

std::optional<double> TimeAccount::ettr_predicted() const {
  if (!save || !save_interval) return std::nullopt;
  // The time of training between two saves, without the save itself.
  const double interval = std::max(*save_interval - *save, 1e-3 * *save_interval);
  planning::FailureModel model{.mttf = std::numeric_limits<double>::infinity(), .save = *save};
  if (failures > 0) {
    model.mttf = (elapsed - paused) / static_cast<double>(failures);
    model.restart = recovery.value_or(restarting / static_cast<double>(failures));
    // The formula adds half of the interval.
    if (lost_from_copies) model.restart += *lost_from_copies - interval / 2;
  }
  if (!(model.mttf > 0)) return std::nullopt;
  return planning::ettr_linear(model, interval);
}

}  // namespace strata::diagnosis
