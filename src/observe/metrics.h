// A run's metrics.jsonl: one JSON object a line. A step line begins with "step"; every other line begins with
// "event" (and says "at_step" where it belongs to one). Steps rise by one and each stands once: what a
// rollback takes back moves to metrics.discarded.jsonl. Numbers that JSON does not know (NaN) are null.
#pragma once

#include <cstdint>
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
using MetricFields = std::vector<MetricField>;  // in the order in which they are written

// {"step":…,fields…} or {"event":…,"at_step":…,fields…} with a line end. at_step < 0: left out.
std::string step_line(int64_t step, const MetricFields& fields);
std::string event_line(std::string_view event, int64_t at_step, const MetricFields& fields);

// The figures of a step as other tools take them, TensorBoard among them: every number of its line of
// metrics.jsonl by the same name, true as 1; without its time, which each record has.
std::vector<std::pair<std::string, double>> scalars_of(const MetricFields& fields);

// Appends to FOLDER/metrics.jsonl; each line is one write. Not thread-safe. Failures of the disk are
// WorldError; a line that was cut short by one is removed before the next is written.
class MetricsSink {
 public:
  MetricsSink(FileSystem& files, const Path& folder);
  ~MetricsSink();

  // Call once before the first line, with the last step that the restored state holds (0: none). Cuts a torn
  // last line and moves step lines beyond `step` to metrics.discarded.jsonl; events stay.
  void resume_at(int64_t step);

  // `step` must follow the last one.
  void step(int64_t step, const MetricFields& fields);
  void event(std::string_view event, int64_t at_step, const MetricFields& fields);

  // What was written is on the disk: call before a checkpoint's manifest is written.
  void sync();

 private:
  void append(const std::string& line);

  FileSystem& files_;
  Path path_, discarded_path_;
  std::unique_ptr<WritableFile> file_;
  uint64_t size_ = 0;  // bytes of whole lines
  bool torn_ = false;  // bytes of a failed write may follow them
  int64_t last_step_ = 0;
};

struct MetricsEvent {
  std::string event;
  int64_t at_step = -1;
  MetricFields fields;
};

// The metrics of a run by column, for plots: numbers only, NaN where a step has none.
class MetricsTable {
 public:
  void add_step(int64_t step, const MetricFields& fields);
  void add_event(MetricsEvent event) { events_.push_back(std::move(event)); }
  void drop_after(int64_t step);  // a rollback

  const std::vector<int64_t>& steps() const { return steps_; }
  // As long as steps(); empty for a name that never came.
  std::span<const double> column(std::string_view name) const;
  std::vector<std::string> names() const;
  double last(std::string_view name) const;  // the last number of a column, else NaN
  const std::vector<MetricsEvent>& events() const { return events_; }

 private:
  std::vector<int64_t> steps_;
  std::map<std::string, std::vector<double>, std::less<>> columns_;
  std::vector<MetricsEvent> events_;
};

// Reads metrics.jsonl. A file that is not there gives an empty table; a torn last line and lines that are not
// JSON objects are passed over; of two lines for a step the later counts.
MetricsTable read_metrics(const Path& path);

}  // namespace strata::observe
