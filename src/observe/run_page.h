// index.html of a run folder: the whole run on one page that needs no network and no other files.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "observe/expert_log.h"
#include "observe/metrics.h"
#include "observe/rank_log.h"

namespace strata::observe {

enum class RunState {
  kRunning,
  kWaiting,  // a process uses the folder and has not begun to train yet
  kFinished,
  kInterrupted,  // saved and stopped, by request or by its time limit
  kFailed,       // it did not end, and no process uses the folder
};
std::string_view name_of(RunState state);

struct TimeShare {
  std::string name;  // a kernel family, "data", "update", …
  double milliseconds = 0;
};

struct MemoryShare {
  std::string name;  // "weights", "activations", …
  double planned_bytes = 0;
  double used_bytes = std::numeric_limits<double>::quiet_NaN();  // NaN: not measured
};

// Text that the model generated at a step.
struct RunSample {
  int64_t step = 0;
  std::string prompt, text;
};

struct RunEvent {
  std::string time;  // as shown
  int64_t step = 0;
  std::string kind, text;
};

// Texts are plain text. Empty texts and NaN are omitted from the page.
struct RunPageData {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  std::string name;
  RunState state = RunState::kRunning;
  std::string state_text;  // why it failed or stopped
  std::string updated;     // when the page was written
  int64_t step = 0, total_steps = 0;
  double tokens = kUnknown, seconds_elapsed = kUnknown, seconds_left = kUnknown;
  double memory_budget_bytes = kUnknown;
  double goodput = kUnknown, ettr = kUnknown, ettr_predicted = kUnknown;  // shares of the time
  std::vector<std::pair<std::string, std::string>> facts;                 // "model" → "llama3-29m", …
  const MetricsTable* metrics = nullptr;                                  // must not be null
  std::vector<RankSample> ranks;                                          // oldest first; empty for one rank
  std::vector<ExpertSample> experts;  // oldest first; empty for a dense model
  std::vector<TimeShare> step_time;
  std::vector<MemoryShare> memory;
  std::vector<RunEvent> events;    // oldest first
  std::vector<RunSample> samples;  // oldest first
  std::string go_on_command;       // extends a finished run, or resumes a stopped one
  int refresh_seconds = 10;        // while running
};

std::string run_page_html(const RunPageData& run);
void write_run_page(FileSystem& files, const Path& path, const RunPageData& run);

}  // namespace strata::observe
