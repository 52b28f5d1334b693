// What an attempt did, from the lines that it wrote to the run's metrics: the line of the ledger.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "observe/ledger.h"

namespace strata::launch {

// The end of a file of lines: all lines from the first one whose "time" is at least `from`, and a few before it. Reads no
// more than that part, because the metrics of a long run are large.
std::string lines_since(const Path& path, double from);

struct AttemptLines {
  std::string_view metrics;    // the end of metrics.jsonl
  std::string_view discarded;  // the lines added to metrics.discarded.jsonl during the attempt
};

// The attempt before, if it failed.
struct FailedBefore {
  double last_sign = 0;  // Unix seconds at which its ranks were last seen at work
};

// Completes `attempt`, whose times, exit code and first failure are known.
void add_account(const AttemptLines& lines, const std::optional<FailedBefore>& before,
                 observe::LedgerAttempt& attempt);

// The time of the last line in `metrics` from `began` on; nullopt: there is none.
std::optional<double> last_line_time(std::string_view metrics, double began);

// The time of the first event of a run, which identifies it; nullopt: it has not begun.
std::optional<double> run_began(const Path& metrics);

// The newest step from which the run can resume: that of a complete checkpoint, or of copies of all ranks of this host in
// the run's folder in memory; -1: none.
int64_t newest_saved_step(const Path& run, const Path& memory);

}  // namespace strata::launch
