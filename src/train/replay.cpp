#include "train/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parallel.h"
#include "comm/exchange.h"
#include "config/plan.h"
#include "program/initialize.h"
#include "program/update.h"
#include "train/injector.h"
#include "train/past_run.h"
#include "train/resume.h"
#include "train/run_store.h"
#include "train/shared_run.h"
#include "train/snapshots.h"
#include "train/step_digests.h"
#include "train/step_replayer.h"

namespace strata::training {
namespace {

using Json = nlohmann::json;

constexpr const char* kVerb = "replay";

// The run's record of a step, and the machine on which it was made.
struct Recorded {
  Json step;
  Json start;  // the last start or resume before it
};

Recorded recorded_step(const Path& run, int64_t step) {
  Recorded out;
  Json start;
  int64_t last = 0;
  std::ifstream lines(run / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json_or_discard<Json>(line);
    if (!json.is_object()) continue;
    const auto event = json.value("event", std::string());
    if ((event == "start" || event == "resume") && json.value("at_step", int64_t{0}) < step) start = json;
    if (!json.contains("step") || !json.at("step").is_number_integer()) continue;
    last = json.at("step").get<int64_t>();
    if (last != step) continue;
    out.step = json;
    out.start = start;
  }
  if (out.step.is_null()) {
    throw ConfigError("[strata replay --step {}] the run has made {} steps; give one of them", step, last);
  }
  return out;
}

void require_same_machine(const Json& start, const hardware::DeviceSpec& device) {
  const std::string isa = start.value("isa", device.isa.str());
  if (isa == device.isa.str()) return;
  throw ConfigError(
      "[strata replay] the run was made with the instruction sets {}, this machine has {}: results differ in "
      "their last bits; replay it on a machine like that one",
      isa, device.isa.str());
}

bool equals(const Json& recorded, const char* name, double value) {
  if (!recorded.contains(name)) return true;  // an older run
  const Json& one = recorded.at(name);
  if (one.is_null()) return !std::isfinite(value);
  return one.is_number() && one.get<double>() == value;
}

// The value that comes first in the step, of all ranks. Only the first rank, whose result is used, reads the
// documents.
std::optional<ReplayedValue> first_of_all(const program::Ranks& ranks,
                                          const std::optional<ComputedValue>& mine, const StepReplayer& steps,
                                          const config::RunPlan& plan) {
  std::string text;
  if (mine) {
    const StepReplayer::SampleRange samples = steps.samples_of(mine->micro_batch);
    const Json json{{"place", mine->place}, {"instruction", mine->instruction}, {"tensor", mine->tensor},
                    {"layer", mine->layer}, {"first", samples.first},           {"count", samples.count}};
    text = json.dump();
  }
  std::optional<ReplayedValue> first;
  StepReplayer::SampleRange samples;
  int64_t place = std::numeric_limits<int64_t>::max();
  int rank = 0;
  for (const std::string& one : comm::gather_texts(ranks.all(), text)) {
    const int from = rank++;
    if (one.empty()) continue;
    const Json json = Json::parse(one);
    if (json.at("place").get<int64_t>() >= place) continue;
    place = json.at("place").get<int64_t>();
    first = ReplayedValue{
        .instruction = json.at("instruction"), .tensor = json.at("tensor"), .layer = {}, .rank = from};
    samples = {json.at("first").get<int64_t>(), json.at("count").get<int64_t>()};
    if (const auto layer = json.at("layer").get<int64_t>(); layer >= 0) first->layer = layer;
  }
  if (first && ranks.is_first())
    first->documents = RunDocuments(plan.config, plan.data).of(steps.samples(), samples.first, samples.count);
  return first;
}

Replay replay_run(comm::World& world, const ReplayOptions& options, const config::RunConfig& config,
                  SharedRun& shared) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const Recorded recorded = recorded_step(options.run, options.step);
  world.configure(config::world_options(config));
  set_compute_threads(static_cast<int>(*config.device.threads));
  flush_denormals();
  const RunStore store(files, options.run, RunStore::Role::kReader);
  if (world.rank() == 0) {
    std::vector<int32_t> stages(static_cast<size_t>(std::max<int64_t>(1, config.parallel.pipeline)));
    std::iota(stages.begin(), stages.end(), 0);
    shared.plan = plan_of_run(files, options.run, config, std::move(stages));
  }
  world.barrier();
  const config::RunPlan& plan = *shared.plan;
  const int32_t stage = config::mesh_of(plan.config).coordinates(world.rank())[graph::Axis::kPipeline];
  std::shared_ptr<const program::ProgramSet> set = plan.set(stage);
  require_same_machine(recorded.start, set->options.target.spec);
  const program::Ranks ranks(world, set->options);
  StepReplayer steps({.config = plan.config,
                      .model = plan.model,
                      .tokenizer = plan.tokens(),
                      .data = plan.data,
                      .ranks = ranks},
                     store, files, set);
  steps.go_to(options.step - 1);
  Snapshots before(steps.executor(), 1);
  before.take(steps.state());
  const StepRecord record = steps.run();
  const bool finite = record.decision.nonfinite == 0 && record.decision.overflowed == 0;
  Replay out{.step = options.step};
  out.same = equals(recorded.step, "loss", record.loss.value_or(0)) &&
             equals(recorded.step, "grad_norm", record.grad_norm) &&
             recorded.step.value("weights_digest", record.weights_digest) == record.weights_digest;
  if (out.same && finite) return out;
  const size_t program = steps.program();
  const auto observed = [&](const auto& use) {
    steps.restore(before, options.step - 1);
    StepDigests digests(steps.executor(), program);
    steps.run();
    use(digests);
  };
  observed([&](const StepDigests& first) {
    out.first_nonfinite = first_of_all(ranks, finite ? std::nullopt : first.first_nonfinite(), steps, plan);
    if (out.same) return;
    observed([&](const StepDigests& second) {
      out.first_difference = first_of_all(ranks, second.first_difference(first), steps, plan);
    });
  });
  return out;
}

}  // namespace

int64_t ranks_of_run(const Path& run) {
  return config::mesh_of(config_of_run(run, kVerb)).ranks();
}

Replay replay_on_threads(const ReplayOptions& options, int ranks) {
  const config::RunConfig config = config_of_run(options.run, kVerb);
  const int64_t made_with = config::mesh_of(config).ranks();
  if (made_with != ranks) {
    throw ConfigError(
        "[strata replay --ranks {}] the run has {} ranks, and another layout yields other bits; leave --ranks out",
        ranks, made_with);
  }
  Replay result;
  SharedRun shared;
  comm::run_local_ranks(ranks, [&](comm::World& world) {
    Replay mine = replay_run(world, options, config, shared);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

}  // namespace strata::training
