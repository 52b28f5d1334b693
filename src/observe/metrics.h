// A run's metrics.jsonl, one JSON object per line. A step line begins with "step", every other line with
// "event", followed by "at_step" if the event belongs to a step. Steps are consecutive and unique: a rollback
// moves later ones to metrics.discarded.jsonl. Numbers that JSON cannot represent (NaN) are null.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"

namespace strata::observe {

using MetricValue = std::variant<double, int64_t, bool, std::string>;
struct MetricField {
  std::string name;
  MetricValue value;
};
using MetricFields = std::vector<MetricField>;  // in the order of writing

// {"step":…,fields…} or {"event":…,"at_step":…,fields…} with a newline. at_step < 0: omitted.
std::string step_line(int64_t step, const MetricFields& fields);
std::string event_line(std::string_view event, int64_t at_step, const MetricFields& fields);

// A step's numbers for TensorBoard and other tools: every number of its line in metrics.jsonl under the same
// name, with true as 1; without "time", which every record has.
std::vector<std::pair<std::string, double>> scalars_of(const MetricFields& fields);

// Appends to FOLDER/metrics.jsonl, one write per line. Not thread-safe. Disk errors are WorldError; a line
// that one truncated is removed before the next line is written.
class MetricsSink {
 public:
  MetricsSink(FileSystem& files, const Path& folder);
  ~MetricsSink();

  // Call once before the first line, with the last step of the restored state (0: none). Drops a torn last
  // line and moves later steps to metrics.discarded.jsonl; events stay.
  void resume_at(int64_t step);

  // `step` must follow the last one.
  void step(int64_t step, const MetricFields& fields);
  void event(std::string_view event, int64_t at_step, const MetricFields& fields);

  // Flushes all lines to disk. Call before writing a checkpoint's manifest.
  void sync();

 private:
  void append(const std::string& line);

  FileSystem& files_;
  Path path_, discarded_path_;
  std::unique_ptr<WritableFile> file_;
  uint64_t size_ = 0;  // bytes of complete lines
  bool torn_ = false;  // bytes of a failed write may follow them
  int64_t last_step_ = 0;
};

struct MetricsEvent {
  std::string event;
  int64_t at_step = -1;
  MetricFields fields;
};

// The metrics of a run by column, for plots: numbers only, NaN for missing ones.
class MetricsTable {
 public:
  void add_step(int64_t step, const MetricFields& fields);
  void add_event(MetricsEvent event) { events_.push_back(std::move(event)); }
  void drop_after(int64_t step);  // a rollback
  // The losses of dropped steps, with a NaN after each rollback.
  struct Undone {
    std::vector<double> steps, loss;
  };
  const Undone& undone() const { return undone_; }

  const std::vector<int64_t>& steps() const { return steps_; }
  // As long as steps(); empty for an unknown name.
  std::span<const double> column(std::string_view name) const;
  std::vector<std::string> names() const;
  double last(std::string_view name) const;  // the last number of a column, else NaN
  const std::vector<MetricsEvent>& events() const { return events_; }

 private:
  std::vector<int64_t> steps_;
  std::map<std::string, std::vector<double>, std::less<>> columns_;
  Undone undone_;
  std::vector<MetricsEvent> events_;
};

// Calls `step` or `event` for each line of a file of metrics, in its order; a torn last line is skipped.
// Returns the number of complete lines that are neither a step nor an event. A missing file has no lines.
struct MetricsVisitor {
  std::function<void(int64_t step, const MetricFields&)> step;
  std::function<void(MetricsEvent)> event;
};
int64_t for_each_metric(const Path& path, const MetricsVisitor& visit);

// Reads metrics.jsonl. Returns an empty table for a missing file; skips a torn last line and lines that are
// not JSON objects; of two lines for a step the later one is used.
MetricsTable read_metrics(const Path& path);

}  // namespace strata::observe
