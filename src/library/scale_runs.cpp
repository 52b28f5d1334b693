#include "library/scale_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "config/resolve.h"
#include "diagnosis/run_state.h"
#include "library/diagnosis.h"
#include "models/model.h"
#include "observe/chart.h"
#include "observe/run_history.h"

namespace strata::library {
namespace {

constexpr std::string_view kHeldOut = "eval/valid/loss";

struct RunFacts {
  Path folder;
  double params = 0.0, tokens = 0.0;
  double held_out = 0.0, training = 0.0;  // losses; NaN: not measured
  planning::RunCurve curve;
  bool finished = false, mixture = false;
};

double mean_of_last(std::span<const double> losses) {
  const size_t window = std::clamp<size_t>(losses.size() / 20, 1, 100);
  double sum = 0.0;
  size_t count = 0;
  for (size_t i = losses.size() - std::min(losses.size(), window); i < losses.size(); ++i) {
    if (!std::isfinite(losses[i])) continue;
    sum += losses[i];
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

// The model of the run: the final one, that of the newest checkpoint, or that of run.toml.
std::optional<models::ModelConfig> model_of(const diagnosis::Evidence& run) {
  std::vector<Path> folders{run.folder / "final"};
  for (const diagnosis::CheckpointFacts& checkpoint : run.checkpoints) folders.push_back(checkpoint.path);
  std::error_code error;
  for (const Path& folder : folders) {
    const Path file = folder / "config.json";
    if (std::filesystem::exists(file, error)) return models::read_config_json(read_file(file), file.string());
  }
  if (run.config) {
    try {
      return config::resolve_model(*run.config);
    } catch (const Error&) {  // such as a size that depends on a tokenizer
    }
  }
  return std::nullopt;
}

RunFacts facts_of(const Path& folder) {
  const diagnosis::Evidence run = diagnosis::read_evidence(folder, unix_seconds());
  if (run.metrics.steps().empty())
    throw DataError("[{}] found no steps in metrics.jsonl, expected a run that has trained", folder.string());
  RunFacts out;
  out.folder = folder;
  out.tokens = run.metrics.last("tokens");
  out.held_out = run.metrics.last(kHeldOut);
  out.training = mean_of_last(run.metrics.column("loss"));
  out.finished = diagnosis::state_of(run) == diagnosis::RunState::kFinished;
  if (const auto model = model_of(run)) {
    out.params = static_cast<double>(models::active_parameter_count(*model));
    out.mixture = models::parameter_count(*model) > models::active_parameter_count(*model);
  } else {
    for (const observe::MetricsEvent& event : run.metrics.events()) {
      if (const double count = observe::number_of(event, "parameters"); count > 0) out.params = count;
    }
  }
  if (!(out.params > 0)) {
    throw DataError(
        "[{}] found no parameter count, expected final/config.json, a checkpoint, run.toml or the event "
        "\"start\" of metrics.jsonl",
        folder.string());
  }
  if (!(out.tokens > 0))
    throw DataError("[{}/metrics.jsonl] found no \"tokens\", expected the tokens of each step",
                    folder.string());
  out.curve.params = out.params;
  const auto tokens = run.metrics.column("tokens");
  const std::vector<double> losses =
      observe::smoothed(run.metrics.column("loss"), std::clamp<size_t>(tokens.size() / 20, 1, 100));
  for (size_t i = 0; i < std::min(tokens.size(), losses.size()); ++i) {
    const bool ascends = out.curve.tokens.empty() || tokens[i] > out.curve.tokens.back();
    if (!(tokens[i] > 0) || !ascends || !std::isfinite(losses[i])) continue;
    out.curve.tokens.push_back(tokens[i]);
    out.curve.loss.push_back(losses[i]);
  }
  if (!std::isfinite(out.training) && !std::isfinite(out.held_out))
    throw DataError("[{}/metrics.jsonl] found no loss, expected \"loss\" or \"{}\"", folder.string(),
                    kHeldOut);
  return out;
}

bool is_table(const std::string& input) {
  std::error_code error;
  return input.ends_with(".csv") || std::filesystem::is_regular_file(input, error);
}

}  // namespace

ScalePoints read_scale_points(const std::vector<std::string>& inputs) {
  ScalePoints out;
  std::vector<RunFacts> runs;
  for (const std::string& input : inputs) {
    if (is_table(input)) {
      for (planning::NamedRun& run : planning::parse_run_points(read_file(input), input))
        out.runs.push_back(std::move(run));
    } else {
      runs.push_back(facts_of(run_folder(input)));
    }
  }
  const bool from_tables = !out.runs.empty();
  const auto count_if = [&](auto&& is) {
    return static_cast<size_t>(std::count_if(runs.begin(), runs.end(), is));
  };
  const size_t measured = count_if([](const RunFacts& run) { return std::isfinite(run.held_out); });
  const bool held_out = measured == runs.size();
  for (const RunFacts& run : runs) {
    const double loss = held_out ? run.held_out : run.training;
    if (!std::isfinite(loss)) {
      throw DataError("[{}/metrics.jsonl] found no \"loss\", expected one because {} of {} runs have no {}",
                      run.folder.string(), runs.size() - measured, runs.size(), kHeldOut);
    }
    out.curves.push_back(run.curve);
    out.runs.push_back({run.folder.string(), {.params = run.params, .tokens = run.tokens, .loss = loss}});
  }
  if (runs.empty()) {
    out.loss_name = "column loss";
  } else {
    out.loss_name =
        held_out ? fmt::format("the last {} of each run", kHeldOut)
                 : fmt::format("mean training loss of the last 5 % of the steps; {} of {} runs have no {}",
                               runs.size() - measured, runs.size(), kHeldOut);
    if (from_tables) out.loss_name += ", and the column loss of tables";
  }
  if (const size_t left = count_if([](const RunFacts& run) { return !run.finished; }); left > 0) {
    out.notes.push_back(fmt::format(
        "{} of {} runs have not finished: before the learning rate has decayed, losses are above the law's",
        left, runs.size()));
  }
  if (const size_t mixtures = count_if([](const RunFacts& run) { return run.mixture; }); mixtures > 0) {
    out.notes.push_back(fmt::format("{} of {} runs have experts: N is the parameters that a token uses",
                                    mixtures, runs.size()));
  }
  return out;
}

}  // namespace strata::library
