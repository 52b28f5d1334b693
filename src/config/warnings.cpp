#include "base/error.h"
#include "base/file.h"
#include "config/ramp.h"
#include "config/resolve.h"

namespace strata::config {
namespace {

// A model's config.json may ask for dropout, which training here does not have.
void warn_of_dropout(const RunConfig& config, std::vector<Issue>& out) {
  std::string keys;
  try {
    for (const auto& [key, rate] : resolve_model(config).dropout) {
      // Applies to heads that pretraining does not have.
      if (key == "classifier_dropout" || key == "summary_first_dropout") continue;
      keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", key, rate);
    }
  } catch (const Error&) {  // validation reports the error
  }
  if (keys.empty()) return;
  const std::string key = config.model.from.empty() ? "model.override" : "model.from";
  out.push_back(
      {key, config.origin_of(key),
       fmt::format("found {} in the model's config.json: training runs without dropout; the config.json "
                   "that it writes keeps the values for other programs",
                   keys)});
}

}  // namespace

std::vector<Issue> warnings(const RunConfig& config) {
  std::vector<Issue> out;
  if (config.debug.reference_kernels) {
    out.push_back({"debug.reference_kernels", config.origin_of("debug.reference_kernels"),
                   "found true: every op is computed from its formula in fp64, many times slower"});
  }
  warn_of_dropout(config, out);
  if (config.parallel.pipeline > 1 && config.eval.sample_tokens > 0) {
    out.push_back({"parallel.pipeline", config.origin_of("parallel.pipeline"),
                   fmt::format("found {}: no samples are written, because each rank of a pipeline holds only "
                               "some layers; use strata generate on a checkpoint",
                               config.parallel.pipeline)});
  }
  for (const Range& range : config.profile.steps) {
    if (range.first >= 1 && range.last <= total_steps(config)) continue;
    out.push_back(
        {"profile.steps", config.origin_of("profile.steps"),
         fmt::format("found {} to {}, but the run has steps 1 to {}: no trace is written of the others",
                     range.first, range.last, total_steps(config))});
  }
  if (const auto command = alert_command(config); !command.empty() && !find_program(command[0])) {
    out.push_back(
        {"log.alert_command", config.origin_of("log.alert_command"),
         fmt::format("found \"{}\", which is not a program on PATH: alerts will not be sent; expected "
                     "a list of the program and its arguments, which no shell reads",
                     command[0])});
  }
  if (const std::string unfinished = unfinished_ramp(config); !unfinished.empty())
    out.push_back(
        {unfinished, config.origin_of(unfinished), "the run ends before a step has the last of its sizes"});
  const optim::ScheduleConfig schedule = schedule_of(config);
  // Trial runs shorten a run on the command line, so this is not an error.
  if (schedule.warmup_steps > schedule.steps) {
    out.push_back(
        {"schedule.warmup_steps", config.origin_of("schedule.warmup_steps"),
         fmt::format(
             "found {}, more than the horizon of {} steps: the learning rate never reaches optimizer.lr",
             schedule.warmup_steps, schedule.steps)});
    return out;
  }
  const double wanted = schedule.decay_ratio * static_cast<double>(schedule.steps);
  if (schedule.kind == optim::ScheduleKind::kWsd &&
      static_cast<double>(optim::wsd_decay_steps(schedule)) + 0.5 < wanted) {
    out.push_back(
        {"schedule.decay_ratio", config.origin_of("schedule.decay_ratio"),
         fmt::format(
             "found {}, a decay of {:.0f} steps: after a warm-up of {} the horizon of {} steps leaves {}",
             schedule.decay_ratio, wanted, schedule.warmup_steps, schedule.steps,
             optim::wsd_decay_steps(schedule))});
  }
  return out;
}

}  // namespace strata::config
