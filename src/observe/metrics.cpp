#include "observe/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "observe/lines.h"

namespace strata::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void add_fields(Json& line, const MetricFields& fields) {
  for (const MetricField& field : fields) {
    std::visit([&](const auto& value) { line[field.name] = value; }, field.value);
  }
}

// Writes replacement characters for invalid UTF-8: metrics must not stop a run.
std::string dump(const Json& line) {
  return dump_json(line, -1, InvalidUtf8::kReplace) + "\n";
}

std::optional<Json> parse_line(std::string_view text) {
  Json line = parse_json_or_discard<Json>(text);
  if (!line.is_object()) return std::nullopt;
  return line;
}

// An integer within the range that a run writes; other tools may have written numbers beyond 64 bits.
std::optional<int64_t> count_in(const Json& value) {
  constexpr int64_t kMost = int64_t{1} << 53;
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMost)) return std::nullopt;
  const auto count = value.get<int64_t>();
  return count >= 0 && count <= kMost ? std::optional(count) : std::nullopt;
}

std::optional<int64_t> step_of(const Json& line) {
  const auto it = line.find("step");
  return it == line.end() || line.contains("event") ? std::nullopt : count_in(*it);
}

// Whether lists and objects are nested at most `levels` deep: writing a deeper value, from another tool,
// could overflow the stack.
bool is_shallow(const Json& value, int levels) {
  if (!value.is_structured()) return true;
  return levels > 0 && std::all_of(value.begin(), value.end(),
                                   [&](const Json& one) { return is_shallow(one, levels - 1); });
}

MetricFields fields_of(const Json& line) {
  MetricFields fields;
  for (const auto& [name, value] : line.items()) {
    if (name == "step" || name == "event" || name == "at_step") continue;
    if (value.is_boolean()) {
      fields.push_back({name, value.get<bool>()});
    } else if (count_in(value)) {
      fields.push_back({name, value.get<int64_t>()});
    } else if (value.is_number()) {
      fields.push_back({name, value.get<double>()});
    } else if (value.is_null()) {
      fields.push_back({name, kNaN});
    } else if (is_shallow(value, 8)) {
      fields.push_back(
          {name, value.is_string() ? value.get<std::string>() : dump_json(value, -1, InvalidUtf8::kReplace)});
    }
  }
  return fields;
}

}  // namespace

std::string step_line(int64_t step, const MetricFields& fields) {
  Json line;
  line["step"] = step;
  add_fields(line, fields);
  return dump(line);
}

std::string event_line(std::string_view event, int64_t at_step, const MetricFields& fields) {
  Json line;
  line["event"] = event;
  if (at_step >= 0) line["at_step"] = at_step;
  add_fields(line, fields);
  return dump(line);
}

std::vector<std::pair<std::string, double>> scalars_of(const MetricFields& fields) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : fields) {
    if (name == "time") continue;
    std::visit(
        [&, &name = name](const auto& held) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(held)>, std::string>)
            scalars.emplace_back(name, static_cast<double>(held));
        },
        value);
  }
  return scalars;
}

MetricsSink::MetricsSink(FileSystem& files, const Path& folder)
    : files_(files), path_(folder / "metrics.jsonl"), discarded_path_(folder / "metrics.discarded.jsonl") {}

MetricsSink::~MetricsSink() = default;

void MetricsSink::resume_at(int64_t step) {
  const std::string content = read_or_empty(path_);
  std::string kept, discarded;
  for_each_line(content, [&](std::string_view text) {
    const std::optional<Json> line = parse_line(text);
    const std::optional<int64_t> its_step = line ? step_of(*line) : std::nullopt;
    const bool keep = line && (!its_step || *its_step <= step);
    (keep ? kept : discarded) += text;
  });
  if (!discarded.empty()) {
    // A process that died between the two writes has already moved these lines.
    const std::string before = read_or_empty(discarded_path_);
    if (!before.ends_with(discarded)) {
      auto file = files_.open_for_writing(discarded_path_, /*keep=*/true);
      const bool torn = !before.empty() && before.back() != '\n';
      file->append((torn ? "\n" : "") + discarded);
      file->sync();
      file->close();
    }
  }
  file_.reset();
  if (kept != content) write_file_atomically(files_, path_, kept);
  file_ = files_.open_for_writing(path_, /*keep=*/true);
  size_ = kept.size();
  torn_ = false;
  last_step_ = step;
}

void MetricsSink::append(const std::string& line) {
  STRATA_CHECK(file_ != nullptr, "[metrics] a line was appended before resume_at");
  if (torn_) {
    files_.truncate(path_, size_);
    torn_ = false;
  }
  torn_ = true;
  file_->append(line);
  torn_ = false;
  size_ += line.size();
}

void MetricsSink::step(int64_t step, const MetricFields& fields) {
  STRATA_CHECK(step == last_step_ + 1, "[metrics] found step {} after step {}: expected consecutive steps",
               step, last_step_);
  append(step_line(step, fields));
  last_step_ = step;
}

void MetricsSink::event(std::string_view event, int64_t at_step, const MetricFields& fields) {
  append(event_line(event, at_step, fields));
}

void MetricsSink::sync() {
  if (file_) file_->sync();
}

void MetricsTable::add_step(int64_t step, const MetricFields& fields) {
  if (!steps_.empty() && step <= steps_.back()) drop_after(step - 1);
  steps_.push_back(step);
  for (const MetricField& field : fields) {
    double number = kNaN;
    if (const auto* real = std::get_if<double>(&field.value)) number = *real;
    if (const auto* whole = std::get_if<int64_t>(&field.value)) number = static_cast<double>(*whole);
    if (std::holds_alternative<bool>(field.value) || std::holds_alternative<std::string>(field.value))
      continue;
    std::vector<double>& column = columns_[field.name];
    column.resize(steps_.size(), kNaN);
    column.back() = number;
  }
  for (auto& [name, column] : columns_) column.resize(steps_.size(), kNaN);
}

void MetricsTable::drop_after(int64_t step) {
  const auto end = std::upper_bound(steps_.begin(), steps_.end(), step);
  const std::span<const double> loss = column("loss");
  if (end != steps_.end() && !loss.empty()) {
    undone_.steps.insert(undone_.steps.end(), end, steps_.end());
    undone_.loss.insert(undone_.loss.end(), loss.begin() + (end - steps_.begin()), loss.end());
    undone_.steps.push_back(static_cast<double>(steps_.back()));
    undone_.loss.push_back(kNaN);
  }
  steps_.erase(end, steps_.end());
  for (auto& [name, column] : columns_) column.resize(steps_.size());
}

std::span<const double> MetricsTable::column(std::string_view name) const {
  const auto it = columns_.find(name);
  if (it == columns_.end()) return {};
  return it->second;
}

std::vector<std::string> MetricsTable::names() const {
  std::vector<std::string> all;
  for (const auto& [name, column] : columns_) all.push_back(name);
  return all;
}

double MetricsTable::last(std::string_view name) const {
  const std::span<const double> values = column(name);
  for (auto it = values.rbegin(); it != values.rend(); ++it) {
    if (!std::isnan(*it)) return *it;
  }
  return kNaN;
}

int64_t for_each_metric(const Path& path, const MetricsVisitor& visit) {
  int64_t others = 0;
  const std::string content = read_or_empty(path);
  for_each_line(content, [&](std::string_view text) {
    const std::optional<Json> line = parse_line(text);
    if (const std::optional<int64_t> step = line ? step_of(*line) : std::nullopt) {
      visit.step(*step, fields_of(*line));
    } else if (line && line->contains("event") && (*line)["event"].is_string()) {
      const auto at = line->find("at_step");
      const auto its_step = at == line->end() ? std::nullopt : count_in(*at);
      visit.event({(*line)["event"].get<std::string>(), its_step.value_or(-1), fields_of(*line)});
    } else {
      ++others;
    }
  });
  return others;
}

MetricsTable read_metrics(const Path& path) {
  MetricsTable table;
  for_each_metric(path,
                  {.step = [&](int64_t step, const MetricFields& fields) { table.add_step(step, fields); },
                   .event = [&](MetricsEvent event) { table.add_event(std::move(event)); }});
  return table;
}

}  // namespace strata::observe
