#include "launch/account.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/retention.h"
#include "observe/lines.h"
#include "train/copy_files.h"

namespace strata::launch {
namespace {

using Json = nlohmann::json;

// Clocks of hosts differ a little, and a line's time has microseconds.
constexpr double kTolerance = 1e-3;

double number_in(const Json& line, const char* name) {
  const auto it = line.find(name);
  return it != line.end() && it->is_number() ? it->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string text_in(const Json& line, const char* name) {
  const auto it = line.find(name);
  return it != line.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t step_in(const Json& line, const char* name) {
  const double step = number_in(line, name);
  return step >= 0 && step < 0x1p53 ? static_cast<int64_t>(step) : 0;
}

template <typename Visit>
void each_object(std::string_view lines, const Visit& visit) {
  observe::for_each_line(lines, [&](std::string_view text) {
    const auto line = parse_json_or_discard<Json>(text);
    if (line.is_object()) visit(line);
  });
}

bool is_step(const Json& line) {
  return line.contains("step") && !line.contains("event");
}

}  // namespace

std::string lines_since(const Path& path, double from) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  constexpr uint64_t kFirstBlock = uint64_t{1} << 18;
  const ReadableFile file(path);
  for (uint64_t block = kFirstBlock; true; block *= 4) {
    const uint64_t size = std::min(block, file.size());
    std::string text(size, '\0');
    file.read_at(file.size() - size, text.data(), size);
    if (size == file.size()) return text;
    text.erase(0, text.find('\n') + 1);
    double first = std::numeric_limits<double>::quiet_NaN();
    const size_t end = text.find('\n');
    if (end != std::string::npos) {
      const auto line = parse_json_or_discard<Json>(std::string_view(text).substr(0, end));
      if (line.is_object()) first = number_in(line, "time");
    }
    if (first < from - kTolerance) return text;
  }
}

std::optional<double> last_line_time(std::string_view metrics, double began) {
  std::optional<double> last;
  each_object(metrics, [&](const Json& line) {
    const double time = number_in(line, "time");
    if (time >= began - kTolerance) last = std::max(last.value_or(time), time);
  });
  return last;
}

void add_account(const AttemptLines& lines, const std::optional<FailedBefore>& before,
                 observe::LedgerAttempt& attempt) {
  const auto is_own = [&](const Json& line) { return number_in(line, "time") >= attempt.began - kTolerance; };
  double first_step = std::numeric_limits<double>::infinity();
  each_object(lines.metrics, [&](const Json& line) {
    if (!is_own(line)) return;
    if (const std::string event = text_in(line, "event"); event == "start" || event == "resume") {
      if (attempt.from) return;
      const bool has_copies = text_in(line, "from") == "copies";
      attempt.from = event == "start" ? observe::AttemptFrom::kStart
                     : has_copies     ? observe::AttemptFrom::kCopies
                                      : observe::AttemptFrom::kDisk;
      attempt.from_step = step_in(line, "at_step");
      attempt.to_step = attempt.from_step;
    } else if (is_step(line)) {
      first_step = std::min(first_step, number_in(line, "time"));
      attempt.to_step = std::max(attempt.to_step.value_or(0), step_in(line, "step"));
      if (const double seconds = number_in(line, "step_ms") / 1e3; seconds > 0)
        attempt.productive_s += seconds;
    }
  });
  // A step may have been undone more than once; the newest line of each is what this start undid.
  std::map<int64_t, double> lost;
  each_object(lines.discarded, [&](const Json& line) {
    if (!is_step(line)) return;
    const double time = number_in(line, "time"), seconds = number_in(line, "step_ms") / 1e3;
    if (is_own(line)) {  // a rollback of this attempt
      first_step = std::min(first_step, time);
    } else {
      lost[step_in(line, "step")] = std::isfinite(seconds) ? seconds : 0;
    }
  });
  attempt.lost_steps = std::ssize(lost);
  for (const auto& [step, seconds] : lost) attempt.lost_s += seconds;
  if (before && std::isfinite(first_step)) attempt.recovery_s = std::max(0.0, first_step - before->last_sign);
}

std::optional<double> run_began(const Path& metrics) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(metrics, error)) return std::nullopt;
  const ReadableFile file(metrics);
  std::string text(std::min<uint64_t>(file.size(), uint64_t{1} << 16), '\0');
  file.read_at(0, text.data(), text.size());
  std::optional<double> began;
  each_object(text, [&](const Json& line) {
    const double time = number_in(line, "time");
    if (!began && line.contains("event") && std::isfinite(time)) began = time;
  });
  return began;
}

int64_t newest_saved_step(const Path& run, const Path& memory) {
  int64_t newest = -1;
  std::error_code error;
  for (const checkpoint::ListedCheckpoint& one : checkpoint::list_checkpoints(run / "checkpoints")) {
    if (!std::filesystem::exists(one.path / "manifest.json", error)) continue;
    newest = one.step;
    break;
  }
  return std::max(newest, training::newest_copied_step(memory).value_or(-1));
}

}  // namespace strata::launch
