#include "library/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/median.h"
#include "config/layout.h"
#include "config/resolve.h"
#include "config/run_config.h"
#include "library/explanation.h"
#include "library/simulation.h"
#include "observe/metrics.h"
#include "plan/catalogue.h"
#include "plan/doctor_file.h"
#include "plan/minimize.h"
#include "program/predict.h"
#include "program/price.h"

namespace strata::library {
namespace {

using Json = nlohmann::ordered_json;
using hardware::ClusterSpec;
using hardware::DeviceSpec;

constexpr size_t kLeastSteps = 5;
constexpr double kPrior = 0.3;    // standard deviation of a factor's logarithm
constexpr double kSpread = 0.03;  // of a median step
constexpr size_t kFactors = 4;
constexpr std::array<const char*, kFactors> kNames = {"compute", "memory", "exchange", "launch"};
using Factors = std::array<double, kFactors>;

// Steps since the last start, without its first one; steps with a trace take longer and are left out where others are.
std::vector<double> step_seconds(const observe::MetricsTable& metrics, const config::RunConfig& config) {
  int64_t start = -1;
  for (const observe::MetricsEvent& event : metrics.events()) {
    if (event.event == "start" || event.event == "resume") start = std::max(start, event.at_step);
  }
  std::vector<double> plain, all;
  const std::span<const double> times = metrics.column("step_ms");
  for (size_t i = 0; i < times.size(); ++i) {
    const int64_t step = metrics.steps()[i];
    if (step <= start + 1 || !std::isfinite(times[i])) continue;
    all.push_back(times[i] / 1e3);
    const auto& ranges = config.profile.steps;
    if (std::none_of(ranges.begin(), ranges.end(),
                     [&](const config::Range& range) { return range.first <= step && step <= range.last; }))
      plain.push_back(times[i] / 1e3);
  }
  return plain.size() >= kLeastSteps ? plain : all;
}

struct OpSeconds {
  std::map<std::string, double> seconds;  // by op, of a step
  int64_t steps = 0;
};

// Of the first rank.
OpSeconds read_traces(const Path& folder) {
  OpSeconds out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "traces", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || name.find("-rank-") != std::string::npos ||
        entry.path().extension() != ".json")
      continue;
    Json json;
    try {
      json = parse_json<Json>(read_file(entry.path()));
    } catch (const Json::exception& problem) {
      throw DataError("[{}] {}; expected a trace that strata train has written", entry.path().string(),
                      problem.what());
    }
    ++out.steps;
    for (const Json& event : json.at("traceEvents")) {
      if (event.value("ph", "") != "X") continue;
      std::string op = event.value("name", "");
      // "L3 linear": of layer 3.
      if (op.starts_with('L') && op.find(' ') != std::string::npos) op = op.substr(op.find(' ') + 1);
      out.seconds[op] += event.value("dur", 0.0) / 1e6;
    }
  }
  for (auto& [op, seconds] : out.seconds) seconds /= static_cast<double>(std::max<int64_t>(1, out.steps));
  return out;
}

DeviceSpec scaled(DeviceSpec device, const Factors& by) {
  for (const hardware::Precision precision : hardware::kAllPrecisions) device.gemm_flops[precision] *= by[0];
  for (hardware::FamilyRate& rate : device.rates) {
    rate.flops_per_s *= by[0];
    rate.bytes_per_s *= by[1];
  }
  device.memory_bytes_per_s *= by[1];
  device.cache_bytes_per_s *= by[1];
  device.exchange_bytes_per_s *= by[2];
  device.exchange_cold_bytes_per_s *= by[2];
  device.exchange_seconds /= by[2];
  device.launch_seconds /= by[3];
  return device;
}

std::vector<hardware::LinkLevel> scaled(std::vector<hardware::LinkLevel> links, double by) {
  for (hardware::LinkLevel& link : links) {
    link.bandwidth.value *= by;
    link.startup.value /= by;
    link.latency.value /= by;
  }
  return links;
}

hardware::Machine scaled(hardware::Machine machine, const Factors& by) {
  machine.device = scaled(std::move(machine.device), by);
  machine.links = scaled(std::move(machine.links), by[2]);
  return machine;
}

void scale_op(DeviceSpec& device, const std::string& op, double factor) {
  for (hardware::FamilyRate& rate : device.rates) {
    if (rate.family != op) continue;
    rate.flops_per_s *= factor;
    rate.bytes_per_s *= factor;
  }
}

struct RunSource {
  std::vector<Programs> places;
  hardware::Machine machine;
  OpSeconds traced;
};

double predicted(const RunSource& source, const hardware::Machine& machine) {
  return program::price_step(source.places, config::kTrainProgram, machine).seconds;
}

RunSource read_run(const std::string& folder, const ClusterSpec* cluster, CalibratedRun& run) {
  const auto config = config::read_stored_config(folder);
  if (!config)
    throw ConfigError("[--calibrate] found {}, expected the folder of a run, with run.toml and metrics.jsonl",
                      folder);
  const std::vector<double> steps =
      step_seconds(observe::read_metrics(Path(folder) / "metrics.jsonl"), *config);
  if (steps.size() < kLeastSteps)
    throw DataError("[{}] found {} steps after the first one of its last start, expected at least {}", folder,
                    steps.size(), kLeastSteps);
  const int64_t ranks = config::mesh_of(*config).ranks();
  run = {.name = folder,
         .ranks = ranks,
         .threads = config->device.threads.value_or(1),
         .steps = std::ssize(steps),
         .measured = median_of(steps)};
  std::vector<int32_t> places = places_from(*config, ranks, 0);
  const auto plan = cluster != nullptr ? plan_on(*config, ranks, std::move(places), *cluster)
                                       : plan_as_trained(*config, ranks, std::move(places));
  RunSource source{stages_of(*plan), machine_of(*plan), read_traces(folder)};
  run.traced = source.traced.steps;
  return source;
}

// For each op with traces, what its rates have to be multiplied by: the geometric mean over runs.
std::vector<CalibratedRate> op_factors(const std::vector<RunSource>& sources) {
  std::map<std::string, std::vector<double>> logs;
  for (const RunSource& source : sources) {
    if (source.traced.steps == 0) continue;
    const auto expected =
        program::predict_step(source.places.front()->programs[config::kTrainProgram], source.machine);
    for (const program::FamilyTotal& op : expected.ops) {
      const bool has_rates =
          std::any_of(source.machine.device.rates.begin(), source.machine.device.rates.end(),
                      [&](const auto& rate) { return rate.family == op.family; });
      const auto found = source.traced.seconds.find(op.family);
      if (!has_rates || found == source.traced.seconds.end()) continue;
      if (op.seconds > 0 && found->second > 0)
        logs[op.family].push_back(std::log(op.seconds / found->second));
    }
  }
  std::vector<CalibratedRate> out;
  for (const auto& [op, values] : logs) {
    double sum = 0;
    for (const double value : values) sum += value;
    out.push_back({op, std::exp(sum / static_cast<double>(values.size()))});
  }
  return out;
}

// Half the squared errors of the logarithms, in standard deviations, with those of the prior.
double misfit(const std::vector<RunSource>& sources, const std::vector<CalibratedRun>& runs,
              std::span<const double> logs) {
  Factors by{};
  double sum = 0;
  for (size_t i = 0; i < kFactors; ++i) {
    by[i] = std::exp(logs[i]);
    sum += logs[i] * logs[i] / (2 * kPrior * kPrior);
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    const double error = std::log(predicted(sources[i], scaled(sources[i].machine, by)) / runs[i].measured);
    sum += error * error / (2 * kSpread * kSpread);
  }
  return sum;
}

Factors fit_factors(const std::vector<RunSource>& sources, const std::vector<CalibratedRun>& runs) {
  const auto objective = [&](std::span<const double> x, std::span<double> gradient) {
    constexpr double kStep = 1e-3;
    std::vector<double> at(x.begin(), x.end());
    for (size_t i = 0; i < kFactors; ++i) {
      at[i] = x[i] + kStep;
      const double above = misfit(sources, runs, at);
      at[i] = x[i] - kStep;
      gradient[i] = (above - misfit(sources, runs, at)) / (2 * kStep);
      at[i] = x[i];
    }
    return misfit(sources, runs, x);
  };
  const planning::Minimum found = planning::minimize(objective, std::vector<double>(kFactors, 0.0),
                                                     {.max_iterations = 40, .gradient_tolerance = 1e-3});
  Factors out{};
  for (size_t i = 0; i < kFactors; ++i) out[i] = std::exp(found.x[i]);
  return out;
}

// A figure of a catalogued chip or link, as the runs show it.
void scale_figure(hardware::Figure& figure, double by, const std::string& from) {
  if (!figure.known()) return;
  figure = {.value = figure.value * by, .source = from, .evidence = hardware::Evidence::kMeasured};
}

}  // namespace

Calibration::Calibration(const std::vector<std::string>& folders, const ClusterSpec* cluster) {
  std::vector<RunSource> sources;
  for (const std::string& folder : folders) {
    runs_.emplace_back();
    sources.push_back(read_run(folder, cluster, runs_.back()));
    runs_.back().before = predicted(sources.back(), sources.back().machine);
    if (runs_.back().before <= 0)
      throw DataError("[{}] the rates of this machine are not known; strata doctor measures them", folder);
  }
  rates_ = op_factors(sources);
  for (RunSource& source : sources) {
    for (const CalibratedRate& rate : rates_) scale_op(source.machine.device, rate.name, rate.factor);
  }
  const Factors by = fit_factors(sources, runs_);
  for (size_t i = 0; i < runs_.size(); ++i)
    runs_[i].after = predicted(sources[i], scaled(sources[i].machine, by));
  if (cluster != nullptr) {
    result_ = *cluster;
  } else {
    // By the most ranks that a run had: those between were not seen.
    size_t most = 0;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i].ranks > runs_[most].ranks) most = i;
    const auto alone =
        std::find_if(runs_.begin(), runs_.end(), [](const CalibratedRun& run) { return run.ranks == 1; });
    std::vector<DeviceSpec> measured;
    if (alone != runs_.end())
      measured.push_back(sources[static_cast<size_t>(alone - runs_.begin())].machine.device);
    while (std::ssize(measured) < runs_[most].ranks) measured.push_back(sources[most].machine.device);
    // They have the ops' factors already.
    result_ = hardware::cluster_of(std::move(measured));
  }
  const std::string today = utc_timestamp().substr(0, 10);
  const std::string from = fmt::format("strata simulate --calibrate {}, {}", fmt::join(folders, " "), today);
  for (DeviceSpec& device : result_.measured) {
    if (cluster != nullptr) {
      for (const CalibratedRate& rate : rates_) scale_op(device, rate.name, rate.factor);
    }
    device = scaled(std::move(device), by);
    device.date = today;
  }
  if (result_.measured.empty()) {
    // No more than the peak.
    for (const hardware::Precision precision : hardware::kAllPrecisions) {
      hardware::Figure& fraction = result_.chip.achievable[precision];
      scale_figure(fraction, std::min(by[0], 1 / std::max(fraction.value, 1e-9)), from);
    }
    hardware::Figure& streams = result_.chip.memory_achievable;
    scale_figure(result_.chip.launch, 1 / by[3], from);
    scale_figure(streams, std::min(by[1], 1 / std::max(streams.value, 1e-9)), from);
  }
  for (hardware::LinkLevel& link : result_.links) {
    scale_figure(link.bandwidth, by[2], from);
    scale_figure(link.startup, 1 / by[2], from);
    scale_figure(link.latency, 1 / by[2], from);
  }
  for (size_t i = 0; i < kFactors; ++i) rates_.push_back({kNames[i], by[i]});
}

std::string Calibration::file() const {
  if (!is_json()) return planning::cluster_file(result_);
  Json out = {{"device", parse_json<Json>(hardware::to_json(result_.measured.front()))}};
  out["cluster"] = planning::doctor_cluster(result_.measured, {});
  out["calibration"] = json();
  return dump_json(out, 2) + "\n";
}

Json Calibration::json() const {
  Json out = {{"runs", Json::array()}, {"factors", Json::object()}};
  for (const CalibratedRun& run : runs_)
    out["runs"].push_back({{"run", run.name},
                           {"ranks", run.ranks},
                           {"threads", run.threads},
                           {"steps", run.steps},
                           {"traced_steps", run.traced},
                           {"measured_s", run.measured},
                           {"predicted_before_s", run.before},
                           {"predicted_after_s", run.after}});
  for (const CalibratedRate& rate : rates_) out["factors"][rate.name] = rate.factor;
  return out;
}

std::string Calibration::text() const {
  std::string out =
      fmt::format("{:>12} {:>12} {:>12} {:>6}  {}\n", "measured", "before", "after", "ranks", "run");
  const auto ms = [](double seconds) { return fmt::format("{:.4g} ms", 1e3 * seconds); };
  for (const CalibratedRun& run : runs_)
    out += fmt::format("{:>12} {:>12} {:>12} {:>6}  {}\n", ms(run.measured), ms(run.before), ms(run.after),
                       run.ranks, run.name);
  out += "\nRates, in multiples of the previous ones\n";
  for (const CalibratedRate& rate : rates_) out += fmt::format("  {:<32} {:.3f}\n", rate.name, rate.factor);
  return out;
}

}  // namespace strata::library
