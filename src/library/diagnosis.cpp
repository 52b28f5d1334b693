#include "library/diagnosis.h"

#include <fmt/ranges.h>

#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"

namespace strata::library {
namespace {

using diagnosis::Diagnosis;
using diagnosis::Finding;

std::string share_text(std::optional<double> share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "unknown";
}

// Where the remaining time went.
std::string losses_of(const diagnosis::TimeAccount& time) {
  std::string text;
  const auto add = [&](const char* what, double seconds) {
    if (seconds >= 1) text += fmt::format("; {} {}", human_duration(seconds), what);
  };
  add("for steps that were undone", time.undone);
  add("for restarts", time.restarting);
  add("paused", time.paused);
  return text;
}

nlohmann::ordered_json json_of_share(std::optional<double> share) {
  return share ? nlohmann::ordered_json(*share) : nlohmann::ordered_json();
}

}  // namespace

Path run_folder(const std::string& run) {
  std::error_code error;
  for (const Path& folder : {Path(run), Path("runs") / run}) {
    if (std::filesystem::is_directory(folder, error) && diagnosis::is_run_folder(folder))
      return folder.has_filename() ? folder : folder.parent_path();
  }
  if (std::filesystem::is_directory(run, error)) {
    throw ConfigError("[{}] found none of run.toml, metrics.jsonl and checkpoints, expected a run's folder",
                      run);
  }
  throw ConfigError(
      "[{0}] found neither a folder {0} nor runs/{0}, expected a run's folder, such as runs/shakespeare",
      run);
}

Diagnosis diagnose_run(const std::string& run) {
  return diagnosis::diagnose(diagnosis::read_evidence(run_folder(run), unix_seconds()));
}

std::string text_of(const Diagnosis& diagnosis) {
  std::string text;
  const auto row = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  row("run", diagnosis.folder.string());
  row("state", fmt::format("{}, step {}{}", name_of(diagnosis.state), diagnosis.step,
                           diagnosis.all_steps ? fmt::format(" of {}", *diagnosis.all_steps) : ""));
  const diagnosis::TimeAccount& time = diagnosis.time;
  row("goodput", fmt::format("{} of {} were steps that survive{}", share_text(time.goodput()),
                             human_duration(time.elapsed), losses_of(time)));
  row("ETTR", fmt::format("{}, {} predicted from {} failure{} and the cost of saves", share_text(time.ettr()),
                          share_text(time.ettr_predicted()), time.failures, time.failures == 1 ? "" : "s"));
  if (diagnosis.findings.empty()) row("findings", "none");
  bool has_settings = false;
  for (const Finding& finding : diagnosis.findings) {
    text += fmt::format("\n{}\n  {}\n", finding.name, finding.sentence);
    if (finding.settings.empty()) continue;
    has_settings = true;
    text += fmt::format("  try {}\n", fmt::join(finding.settings, ", "));
  }
  if (has_settings) {
    text += fmt::format(
        "\nTo apply settings: strata train {} --set KEY=VALUE; those of optimizer, schedule, data, training and "
        "moe also need\n--accept-changes. Try one at a time.\n",
        diagnosis.folder.string());
  }
  return text;
}

std::string json_of(const Diagnosis& diagnosis) {
  nlohmann::ordered_json json{{"state", name_of(diagnosis.state)},
                              {"step", diagnosis.step},
                              {"findings", nlohmann::ordered_json::array()}};
  for (const Finding& finding : diagnosis.findings) {
    json["findings"].push_back({{"name", finding.name},
                                {"sentence", finding.sentence},
                                {"evidence", finding.evidence},
                                {"try", finding.settings}});
  }
  const diagnosis::TimeAccount& time = diagnosis.time;
  json["goodput"] = json_of_share(time.goodput());
  json["ettr"] = json_of_share(time.ettr());
  json["ettr_predicted"] = json_of_share(time.ettr_predicted());
  json["steps"] =
      diagnosis.all_steps ? nlohmann::ordered_json(*diagnosis.all_steps) : nlohmann::ordered_json();
  json["seconds"] = {{"elapsed", time.elapsed},
                     {"productive", time.productive},
                     {"undone", time.undone},
                     {"restarting", time.restarting},
                     {"paused", time.paused}};
  json["failures"] = time.failures;
  return dump_json(json, -1, InvalidUtf8::kReplace);
}

}  // namespace strata::library
