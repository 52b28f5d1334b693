#include "observe/ledger.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"
#include "observe/lines.h"

namespace strata::observe {
namespace {

using LedgerJson = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kFroms = {"start", "copies", "disk"};

template <typename T>
LedgerJson or_null(const std::optional<T>& value) {
  return value ? LedgerJson(*value) : LedgerJson();
}

std::optional<double> number_in(const LedgerJson& line, const char* name) {
  const auto it = line.find(name);
  if (it == line.end() || !it->is_number()) return std::nullopt;
  const double value = it->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> whole_in(const LedgerJson& line, const char* name) {
  const auto value = number_in(line, name);
  if (!value || !(*value >= 0 && *value < 0x1p53)) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::string text_in(const LedgerJson& line, const char* name) {
  const auto it = line.find(name);
  return it != line.end() && it->is_string() ? it->get<std::string>() : "";
}

std::optional<LedgerAttempt> attempt_in(std::string_view text) {
  const auto line = parse_json_or_discard<LedgerJson>(text);
  if (!line.is_object() || !line.contains("attempt")) return std::nullopt;
  LedgerAttempt out;
  out.attempt = whole_in(line, "attempt").value_or(0);
  out.ranks = whole_in(line, "ranks").value_or(0);
  out.began = number_in(line, "began").value_or(0);
  out.ended = number_in(line, "ended").value_or(out.began);
  out.exit = static_cast<int>(std::min<int64_t>(whole_in(line, "exit").value_or(0), 255));
  out.first_rank = whole_in(line, "first_rank");
  out.phase = text_in(line, "phase");
  out.collective = text_in(line, "collective");
  const auto from = std::find(kFroms.begin(), kFroms.end(), text_in(line, "from"));
  if (from != kFroms.end()) out.from = static_cast<AttemptFrom>(from - kFroms.begin());
  out.from_step = whole_in(line, "from_step");
  out.to_step = whole_in(line, "to_step");
  out.productive_s = number_in(line, "productive_s").value_or(0);
  out.recovery_s = number_in(line, "recovery_s");
  out.lost_steps = whole_in(line, "lost_steps").value_or(0);
  out.lost_s = number_in(line, "lost_s").value_or(0);
  if (const auto settings = line.find("settings"); settings != line.end() && settings->is_array()) {
    for (const LedgerJson& one : *settings) {
      if (one.is_string()) out.settings.push_back(one.get<std::string>());
    }
  }
  out.run_began = number_in(line, "run_began");
  return out;
}

}  // namespace

bool LedgerAttempt::ended_cleanly() const {
  constexpr int kTerminated = 143;
  return exit == 0 || exit == kTimeLimitExitCode || exit == kInterruptedExitCode || exit == kTerminated;
}

std::string ledger_line(const LedgerAttempt& attempt) {
  LedgerJson line{
      {"attempt", attempt.attempt},
      {"ranks", attempt.ranks},
      {"began", attempt.began},
      {"ended", attempt.ended},
      {"exit", attempt.exit},
      {"first_rank", or_null(attempt.first_rank)},
      {"phase", attempt.phase.empty() ? LedgerJson() : LedgerJson(attempt.phase)},
      {"from_step", or_null(attempt.from_step)},
      {"to_step", or_null(attempt.to_step)},
      {"from", attempt.from ? LedgerJson(kFroms[static_cast<size_t>(*attempt.from)]) : LedgerJson()},
      {"recovery_s", or_null(attempt.recovery_s)},
      {"lost_steps", attempt.lost_steps},
      {"lost_s", attempt.lost_s},
      {"productive_s", attempt.productive_s}};
  if (!attempt.collective.empty()) line["collective"] = attempt.collective;
  if (!attempt.settings.empty()) line["settings"] = attempt.settings;
  line["run_began"] = or_null(attempt.run_began);
  return dump_json(line, -1, InvalidUtf8::kReplace) + "\n";
}

std::vector<LedgerAttempt> read_ledger(const Path& path, int64_t* others) {
  std::vector<LedgerAttempt> out;
  const std::string content = read_or_empty(path);
  for_each_line(content, [&](std::string_view text) {
    if (auto attempt = attempt_in(text)) {
      out.push_back(*std::move(attempt));
    } else if (others != nullptr) {
      ++*others;
    }
  });
  return out;
}

void append_to_ledger(FileSystem& files, const Path& path, const LedgerAttempt& attempt) {
  const std::string before = read_or_empty(path);
  if (!before.empty() && before.back() != '\n') {
    const size_t end = before.rfind('\n');
    files.truncate(path, end == std::string::npos ? 0 : end + 1);
  }
  const auto file = files.open_for_writing(path, /*keep=*/true);
  file->append(ledger_line(attempt));
  file->sync();
  file->close();
}

std::optional<double> mean_time_between_failures(std::span<const LedgerAttempt> attempts) {
  double seconds = 0;
  int64_t failures = 0;
  for (const LedgerAttempt& one : attempts) {
    seconds += std::max(0.0, one.ended - one.began);
    if (!one.ended_cleanly()) ++failures;
  }
  if (failures == 0) return std::nullopt;
  return seconds / static_cast<double>(failures);
}

}  // namespace strata::observe
