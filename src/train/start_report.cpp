#include "train/start_report.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "base/version.h"
#include "config/layout.h"

namespace strata::training {

void report_start(Reporter& reporter, const RunInputs& inputs, const RunPosition& position,
                  const program::Executor& executor, const std::vector<config::Change>& changes,
                  bool from_copies) {
  const config::RunConfig& config = inputs.config;
  const models::ModelConfig& model = inputs.model;
  const int64_t step = position.step();
  for (const config::Change& change : changes) {
    reporter.event("changed", step,
                   {{"key", change.key}, {"before", change.before}, {"after", change.after}});
  }
  if (position.is_reordered())
    reporter.event("reordered", step, {{"first_sample", position.samples()->options().origin.sample}});
  observe::MetricFields start{{"parameters", models::parameter_count(model)},
                              {"arena_bytes", executor.arena_bytes()},
                              {"process_seconds", process_seconds()},
                              {"program", fmt::format("strata {}", program_version())},
                              {"isa", executor.device().spec().isa.str()},
                              {"threads", *config.device.threads}};
  if (!inputs.ranks.alone()) start.push_back({"staging_bytes", inputs.ranks.staging_bytes()});
  if (step > 0) start.push_back({"from", from_copies ? "copies" : "disk"});
  reporter.event(step == 0 ? "start" : "resume", step, start);
  reporter.fact("model", fmt::format("{}, {}", models::parameters_in_words(model),
                                     config.model.preset.empty() ? std::string(model.family->name)
                                                                 : config.model.preset));
  for (const std::string& leak : models::routing_leaks(model)) reporter.fact("routing leaks", leak);
  const auto& training = config.training;
  reporter.fact("batch",
                fmt::format("{} sequences of {} tokens, {} per micro-batch", training.global_batch_size,
                            training.sequence_length, *training.micro_batch_size));
  if (const std::string ramp = config::ramps_in_words(config); !ramp.empty()) reporter.fact("ramp", ramp);
  reporter.fact("data", config::to_string(position.plan()));
  reporter.fact("precision", std::string(name_of(config::activation_dtype(config))));
  reporter.extension(position.extension());
  reporter.fact("threads", std::to_string(*config.device.threads));
  if (inputs.ranks.alone()) return;
  const comm::World& world = inputs.ranks.world();
  reporter.fact("ranks",
                fmt::format("{} {}: {}", world.size(), world.engine() == "local" ? "threads" : "processes",
                            config::layout_in_words(config)));
}

}  // namespace strata::training
