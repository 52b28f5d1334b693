#include "diagnosis/evidence.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/retention.h"
#include "observe/lines.h"

namespace strata::diagnosis {
namespace {

using Json = nlohmann::json;
using observe::MetricField;
using observe::MetricFields;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostCheckpoints = 64;
// The end of a log that is searched for an error.
constexpr uint64_t kLogTail = 64 << 10;

class EvidenceReader {
 public:
  explicit EvidenceReader(Evidence& evidence) : evidence_(evidence) {}

  // Reads one file; errors are listed.
  template <typename Read>
  void file(const std::string& name, const Read& read) {
    const Path path = evidence_.folder / name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return;
    try {
      // Opening a pipe could wait forever.
      if (!std::filesystem::is_regular_file(path, error))
        throw DataError("[{}] is not a file", path.string());
      read(path);
    } catch (const std::exception& problem) {
      evidence_.damaged.push_back({name, problem.what()});
    }
  }

  void lines_without_meaning(const std::string& name, int64_t lines) {
    if (lines > 0)
      evidence_.damaged.push_back(
          {name, fmt::format("{} line{} cannot be read", lines, lines == 1 ? "" : "s")});
  }

  // Calls visit(object) for each complete line that is a JSON object; the number of others is reported.
  template <typename Visit>
  void objects(const std::string& name, const Visit& visit) {
    file(name, [&](const Path& path) {
      int64_t others = 0;
      const std::string content = read_file(path);
      observe::for_each_line(content, [&](std::string_view text) {
        const auto line = parse_json_or_discard<Json>(text);
        if (!line.is_object() || !visit(line)) ++others;
      });
      lines_without_meaning(name, others);
    });
  }

 private:
  Evidence& evidence_;
};

const MetricField* find_field(const MetricFields& fields, std::string_view name) {
  const auto it =
      std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

double real_field(const MetricFields& fields, std::string_view name) {
  const MetricField* field = find_field(fields, name);
  if (field == nullptr) return kUnknown;
  if (const auto* real = std::get_if<double>(&field->value)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&field->value)) return static_cast<double>(*whole);
  return kUnknown;
}

bool is_true(const MetricFields& fields, std::string_view name) {
  const MetricField* field = find_field(fields, name);
  const auto* flag = field != nullptr ? std::get_if<bool>(&field->value) : nullptr;
  return flag != nullptr && *flag;
}

// Whether loss and gradient norm, if the line has them, are numbers.
bool is_finite_step(const MetricFields& fields) {
  for (const char* name : {"loss", "grad_norm"}) {
    if (find_field(fields, name) != nullptr && !std::isfinite(real_field(fields, name))) return false;
  }
  return true;
}

double json_number(const Json& line, const char* name) {
  const auto it = line.find(name);
  return it != line.end() && it->is_number() ? it->get<double>() : kUnknown;
}

int64_t json_count(const Json& line, const char* name, int64_t otherwise) {
  const double number = json_number(line, name);
  return number >= 0 && number < 0x1p53 ? static_cast<int64_t>(number) : otherwise;
}

std::string json_text(const Json& line, const char* name) {
  const auto it = line.find(name);
  return it != line.end() && it->is_string() ? it->get<std::string>() : "";
}

void read_metrics_files(EvidenceReader& reader, Evidence& to) {
  reader.file("metrics.jsonl", [&](const Path& path) {
    const int64_t others = observe::for_each_metric(
        path,
        {.step =
             [&](int64_t step, const MetricFields& fields) {
               to.metrics.add_step(step, fields);
               to.marks.resize(to.metrics.steps().size() - 1);
               to.marks.push_back({.skipped = is_true(fields, "skipped") && !is_true(fields, "overflowed"),
                                   .has_targets = find_field(fields, "loss") != nullptr,
                                   .is_finite = is_finite_step(fields) || is_true(fields, "overflowed")});
             },
         .event = [&](observe::MetricsEvent event) { to.metrics.add_event(std::move(event)); }});
    reader.lines_without_meaning("metrics.jsonl", others);
  });
  reader.file("metrics.discarded.jsonl", [&](const Path& path) { to.undone = read_undone(path); });
}

void read_layer_samples(EvidenceReader& reader, Evidence& to) {
  reader.objects("layers.jsonl", [&](const Json& line) {
    const auto rows = line.find("layers");
    if (rows == line.end() || !rows->is_array()) return false;
    LayerSample sample{.step = json_count(line, "step", 0), .tensors = {}};
    for (const Json& row : *rows) {
      if (!row.is_object()) continue;
      sample.tensors.push_back({.layer = json_count(row, "layer", -1),
                                .tensor = json_text(row, "tensor"),
                                .grad_rms = json_number(row, "grad_rms"),
                                .weight_rms = json_number(row, "weight_rms"),
                                .update_ratio = json_number(row, "update_ratio"),
                                .act_rms = json_number(row, "act_rms"),
                                .act_max = json_number(row, "act_max"),
                                .zero_share = json_number(row, "zero_share")});
    }
    to.layers.push_back(std::move(sample));
    return true;
  });
}

// Any complete line of a log is valid, so only the file itself can be damaged.
template <typename Sample, typename Read>
void read_samples(EvidenceReader& reader, const char* name, std::vector<Sample>& to, const Read& read) {
  reader.file(name, [&](const Path& path) { to = read(path); });
}

void read_checkpoints(EvidenceReader& reader, Evidence& to) {
  std::vector<checkpoint::ListedCheckpoint> listed;
  try {
    listed = checkpoint::list_checkpoints(to.folder / "checkpoints");
  } catch (const std::exception& problem) {
    to.damaged.push_back({"checkpoints", problem.what()});
  }
  if (listed.size() > kMostCheckpoints) listed.resize(kMostCheckpoints);
  for (const checkpoint::ListedCheckpoint& one : listed) {
    CheckpointFacts facts{.path = one.path, .step = one.step, .bytes = 0, .health = {}, .damage = {}};
    try {
      const checkpoint::Manifest manifest = checkpoint::read_manifest(one.path);
      facts.bytes = manifest.bytes();
      facts.health = manifest.health;
    } catch (const std::exception& problem) {
      facts.damage = problem.what();
    }
    to.checkpoints.push_back(std::move(facts));
  }
  if (listed.empty()) return;
  const std::string state = "checkpoints/" + listed.front().path.filename().string() + "/state.json";
  reader.file(state, [&](const Path& path) {
    const auto json = parse_json<Json>(read_file(path));
    const auto sources = json.find("sources");
    if (sources == json.end() || !sources->is_array()) return;
    for (const Json& source : *sources) {
      if (!source.is_object()) continue;
      to.sources.push_back({.name = json_text(source, "name"),
                            .tokens = json_count(source, "tokens", 0),
                            .epoch = json_count(source, "epoch", 0)});
    }
  });
}

void read_attempts(EvidenceReader& reader, Evidence& to) {
  reader.file("ledger.jsonl", [&](const Path& path) {
    int64_t others = 0;
    to.attempts = observe::read_ledger(path, &others);
    reader.lines_without_meaning("ledger.jsonl", others);
  });
}

// The last line that begins with "error:" near the end of a log.
std::string last_error_in(const Path& path) {
  const ReadableFile log(path);
  const uint64_t size = std::min(log.size(), kLogTail);
  std::string text(size, '\0');
  log.read_at(log.size() - size, text.data(), size);
  size_t found = text.rfind("\nerror:");
  if (found == std::string::npos) {
    if (!text.starts_with("error:")) return "";
    found = 0;
  } else {
    ++found;
  }
  return text.substr(found, text.find('\n', found) - found);
}

// Ranks that lost another one log it later than the rank that failed logged its own error, so the first of
// the last errors is the most likely cause: that of the log with the lowest number.
void read_last_error(EvidenceReader& reader, Evidence& to) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(to.folder / "logs", error);
       !error && it != std::filesystem::end(it); it.increment(error)) {
    if (it->path().extension() == ".log") names.push_back("logs/" + it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (to.last_error.empty())
      reader.file(name, [&](const Path& path) { to.last_error = last_error_in(path); });
  }
}

}  // namespace

std::vector<UndoneStep> read_undone(const Path& path) {
  std::vector<UndoneStep> undone;
  // Torn lines of killed processes are moved there, so they are expected.
  observe::for_each_metric(path, {.step =
                                      [&](int64_t step, const MetricFields& fields) {
                                        undone.push_back({.step = step,
                                                          .time = real_field(fields, "time"),
                                                          .seconds = real_field(fields, "step_ms") / 1e3,
                                                          .is_finite = is_finite_step(fields)});
                                      },
                                  .event = [](const observe::MetricsEvent&) {}});
  return undone;
}

bool is_run_folder(const Path& folder) {
  std::error_code error;
  for (const char* name : {"run.toml", "metrics.jsonl", "checkpoints"}) {
    if (std::filesystem::exists(folder / name, error)) return true;
  }
  return false;
}

Evidence read_evidence(const Path& folder, double now) {
  Evidence out{.folder = folder,
               .now = now,
               .config = {},
               .metrics = {},
               .marks = {},
               .undone = {},
               .layers = {},
               .experts = {},
               .ranks = {},
               .checkpoints = {},
               .sources = {},
               .attempts = {},
               .last_error = {},
               .locked = is_locked(folder / ".lock"),
               .free_bytes = {},
               .damaged = {}};
  EvidenceReader reader(out);
  reader.file("run.toml", [&](const Path&) { out.config = config::read_stored_config(folder); });
  read_metrics_files(reader, out);
  read_layer_samples(reader, out);
  read_samples(reader, "experts.jsonl", out.experts, observe::read_expert_log);
  read_samples(reader, "ranks.jsonl", out.ranks, observe::read_rank_log);
  read_checkpoints(reader, out);
  read_attempts(reader, out);
  read_last_error(reader, out);
  try {
    out.free_bytes = posix_file_system().free_bytes(folder);
  } catch (const Error&) {  // the disk may be gone
  }
  return out;
}

}  // namespace strata::diagnosis
