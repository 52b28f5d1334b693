// Reports a run in progress to people and programs: terminal, metrics.jsonl, loss.svg, run page.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "config/run_config.h"
#include "diagnosis/time_account.h"
#include "observe/layer_log.h"
#include "observe/metrics.h"
#include "observe/progress.h"
#include "observe/run_page.h"
#include "observe/tensorboard.h"
#include "program/executor.h"
#include "train/alerts.h"
#include "train/collapse_alarm.h"
#include "train/step_record.h"
#include "train/trainer.h"

namespace strata::training {

// The base class ignores all reports: only the first rank reports the run.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void step(const StepRecord&) {}
  virtual void event(const std::string&, int64_t, const observe::MetricFields& = {}) {}
  virtual void sample(int64_t, const std::string&, const std::string&) {}
  virtual void sync() {}
  // Adds a line to the run page's list of facts.
  virtual void fact(const std::string&, const std::string&) {}
  // The settings that extend a finished run.
  virtual void extension(const std::string&) {}
  // Forgets the steps after `step`, which are undone.
  virtual void roll_back(int64_t) {}
  // A line on the terminal about an event.
  virtual void note(const std::string&) {}
  // The number of steps of the run, if it has changed.
  virtual void total_steps(int64_t) {}
  // After a change of the configuration.
  virtual void changed() {}
  virtual void finish(observe::RunState, const std::string& = "") {}
};

class RunReporter final : public Reporter {
 public:
  RunReporter(FileSystem& files, const config::RunConfig& config, const program::Executor& executor,
              int64_t total_steps, int64_t start_step, const RunObserver& observer);

  void step(const StepRecord& record) override;
  void event(const std::string& name, int64_t step, const observe::MetricFields& fields = {}) override;
  void sample(int64_t step, const std::string& prompt, const std::string& text) override;
  void sync() override {
    metrics_.sync();
    if (experts_) experts_->flush();
  }
  void fact(const std::string& name, const std::string& text) override { facts_.emplace_back(name, text); }
  void extension(const std::string& sets) override { extension_ = sets; }
  void roll_back(int64_t step) override;
  void note(const std::string& text) override { progress_.note(text); }
  void total_steps(int64_t steps) override {
    total_steps_ = steps;
    progress_.total_steps(steps);
  }
  void changed() override;
  void finish(observe::RunState state, const std::string& why = "") override;

 private:
  // Opens the logs of ranks and experts after this step.
  void open_logs(int64_t step);
  diagnosis::TimeAccount time_account() const;
  // Logs the load of experts and warns of collapsed routers.
  void watch_routing(const StepRecord& record);
  // Redraws loss.svg and index.html. A failure is only a warning: the metrics are stored elsewhere.
  void redraw(observe::RunState state, const std::string& why = "");
  void draw(observe::RunState state, const std::string& why);

  FileSystem& files_;
  const RunObserver& observer_;
  const config::RunConfig& config_;
  const program::Executor& executor_;
  int64_t total_steps_;
  Path folder_;
  observe::MetricsSink metrics_;
  Alerts alerts_;
  observe::MetricsTable table_;
  observe::Progress progress_;
  std::optional<observe::RankLog> ranks_;      // with several ranks
  std::optional<observe::ExpertLog> experts_;  // for models with experts
  std::optional<observe::LayerLog> layers_;    // unless log.layers is "never"
  std::optional<CollapseAlarm> alarm_;         // for models with experts
  std::optional<observe::TensorBoardWriter> tensorboard_;
  std::string extension_;
  // Of the run until now; strata launch adds to the ledger between two starts.
  const std::vector<observe::LedgerAttempt> attempts_;
  std::vector<diagnosis::UndoneStep> undone_;
  std::vector<std::pair<std::string, std::string>> facts_;
  int64_t steps_seen_ = 0;
  double data_wait_seconds_ = 0;
  double last_redraw_ = 0, redraw_seconds_ = 0;
  bool drawing_failed_ = false;
};

// Resident memory of this process, in bytes.
int64_t resident_bytes();

// Seconds by kernel family since the last reset of the executor's timings, largest first.
std::vector<std::pair<std::string, double>> seconds_by_family(const program::Executor& executor);

}  // namespace strata::training
