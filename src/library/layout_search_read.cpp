// What strata plan is asked for: the model, the machine and the degrees that are fixed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/suggest.h"
#include "config/choose.h"
#include "config/layout.h"
#include "config/resolve.h"
#include "library/layout_search.h"
#include "library/plan_shape.h"
#include "library/run_inputs.h"
#include "models/model.h"

namespace strata::library {
namespace {

using planning::PipelineSchedule;

// Tokens of a step where a preset or folder leaves them open: those of Llama 2 and 3, less for small models.
constexpr int64_t kUsualSequence = 4096, kUsualTokens = int64_t{1} << 22, kSmallTokens = int64_t{1} << 19;
constexpr double kSmallModel = 1e9;         // parameters
constexpr double kTokensPerParameter = 20;  // Chinchilla (arXiv 2203.15556)

bool is_preset(const std::string& name) {
  const std::vector<models::Preset>& all = models::presets();
  return std::any_of(all.begin(), all.end(), [&](const models::Preset& one) { return one.name == name; });
}

PipelineSchedule schedule_of_key(const std::string& key) {
  static const std::pair<const char*, PipelineSchedule> kKeys[] = {
      {"1f1b", PipelineSchedule::k1F1B},          {"interleaved", PipelineSchedule::k1F1B},
      {"zb_h1", PipelineSchedule::kZeroBubble},   {"interleaved_zb", PipelineSchedule::kZeroBubble},
      {"zbv", PipelineSchedule::kZeroBubbleV},    {"v_half", PipelineSchedule::kVHalf},
      {"v_min", PipelineSchedule::kVMin},         {"gpipe", PipelineSchedule::kGPipe},
      {"dualpipev", PipelineSchedule::kDualPipeV}};
  for (const auto& [name, schedule] : kKeys)
    if (key == name) return schedule;
  throw ConfigError(
      "[parallel.schedule] found \"{}\", expected one of the schedules that plan prices: 1f1b, interleaved, gpipe, "
      "zb_h1, interleaved_zb, zbv, v_half, v_min, dualpipev",
      key);
}

// The device that was measured, as a cluster of one host whose ranks share it.
hardware::ClusterSpec this_machine(const config::RunConfig& config, int64_t ranks) {
  config::RunConfig alone = config;
  if (alone.device.threads.is_word()) alone.device.threads = int64_t{1};
  const config::MachineShare share =
      config::share_of_machine({.ranks = ranks, .local_ranks = static_cast<int>(ranks)});
  alone.device.threads = std::max<int64_t>(1, share.processors);
  hardware::ClusterSpec out =
      hardware::cluster_of({config::make_device(alone)->measured(posix_file_system())});
  out.name = "this machine";
  out.chip.memory = {.value = static_cast<double>(share.memory),
                     .source = "free on this machine",
                     .evidence = hardware::Evidence::kMeasured};
  out.devices_per_host = ranks;
  return out;
}

}  // namespace

void LayoutSearch::read_model(const LayoutRequest& request) {
  const planning::Sets sets = planning::split_sets(request.sets);
  sets_ = sets.run;
  const std::string& name = request.model;
  const Path path(name);
  std::error_code ignored;
  const bool folder = std::filesystem::is_regular_file(path / "config.json", ignored);
  const bool run =
      path.extension() == ".toml" || std::filesystem::is_regular_file(path / "run.toml", ignored);
  if (!run && !folder && !is_preset(name)) {
    std::vector<std::string> names;
    for (const models::Preset& one : models::presets()) names.emplace_back(one.name);
    const auto near = nearest_name(name, names);
    throw ConfigError(
        "[strata plan] found \"{}\", expected a preset (strata presets), a folder with config.json, or a RUN.toml{}",
        name, near ? fmt::format("; did you mean {}?", *near) : "");
  }
  if (run) {
    asked_ = read_command_config({name}, sets.run);
  } else {
    std::vector<std::string> arguments = {fmt::format("model.{}=\"{}\"", folder ? "from" : "preset", name),
                                          "data.train=[\"data/*.jsonl\"]"};
    if (folder) arguments.emplace_back("model.init=\"random\"");
    asked_ = config::read_run_config({}, sets.run, arguments);
    assumptions_.emplace_back("data.train is a placeholder: name your texts or a data build");
  }
  const models::ModelConfig model = config::resolve_model(asked_);
  job_.shape = shape_of(model);
  parameters_ = static_cast<double>(models::parameter_count(model));
  model_name_ = run ? name : fmt::format("{}", name);
  config::TrainingTable& training = asked_.training;
  if (!run) {
    const bool here = request.cluster.empty();
    if (!asked_.was_set("training.sequence_length")) {
      training.sequence_length = std::min<int64_t>(here ? 512 : kUsualSequence, model.max_sequence_length());
      assumptions_.push_back(fmt::format("training.sequence_length = {}", training.sequence_length));
    }
    if (!asked_.was_set("training.global_batch_size")) {
      const int64_t tokens = here ? 64 * 512 : parameters_ < kSmallModel ? kSmallTokens : kUsualTokens;
      training.global_batch_size = std::max<int64_t>(1, tokens / training.sequence_length);
      assumptions_.push_back(fmt::format("training.global_batch_size = {}, {} tokens a step",
                                         training.global_batch_size,
                                         human_count(static_cast<double>(tokens))));
    }
  }
  const double step_tokens = static_cast<double>(training.global_batch_size * training.sequence_length);
  if (request.tokens) {
    tokens_ = *request.tokens;
  } else if (run || asked_.was_set("training.tokens") || asked_.was_set("training.steps")) {
    tokens_ = training.tokens ? static_cast<double>(*training.tokens)
                              : static_cast<double>(training.steps) * step_tokens;
  } else {
    tokens_ = kTokensPerParameter * static_cast<double>(models::active_parameter_count(model));
    assumptions_.push_back(fmt::format(
        "{} tokens, 20 for each parameter that a token uses; --tokens sets them", human_count(tokens_)));
  }
  if (request.tokens || !run) {
    // In whole steps.
    const double steps = std::max(1.0, std::ceil(tokens_ / step_tokens));
    if (request.tokens) training.tokens = std::nullopt;
    if (!training.tokens) training.steps = static_cast<int64_t>(steps);
  }
  const config::IssueHook hooks[] = {config::check_model};
  config::require_valid(asked_, hooks);
  job_.sequence = training.sequence_length;
  job_.batch = training.global_batch_size;
}

void LayoutSearch::read_machine(const LayoutRequest& request) {
  const planning::Sets sets = planning::split_sets(request.sets);
  here_ = request.cluster.empty();
  catalogue_ = here_ ? planning::builtin_catalogue() : planning::catalogue_for(request.cluster);
  if (here_) {
    if (!sets.cluster.empty())
      throw ConfigError("[--set] found {}, which describes a cluster: add --cluster NAME or FILE",
                        sets.cluster.front());
    job_.devices = request.gpus.value_or(1);
    job_.cluster = this_machine(asked_, job_.devices);
    job_.memory_limit = job_.cluster.chip.memory.value;
  } else {
    job_.cluster = planning::resolve_cluster(request.cluster, sets.cluster);
    const std::vector<planning::Price> prices =
        planning::prices_of(catalogue_, job_.cluster.chip.name, planning::Terms::kOnDemand);
    if (!prices.empty()) price_ = prices.front();
  }
  hosts_of_ = std::max<int64_t>(1, job_.cluster.devices_per_host);
  const bool fast = hardware::bf16_is_fast(hardware::device_of(job_.cluster.chip));
  const bool wide = asked_.precision.compute.is_word() ? !fast : *asked_.precision.compute == DType::kF32;
  job_.precision = wide ? hardware::Precision::kFp32 : hardware::Precision::kBf16;
  if (asked_.memory.budget.value) job_.memory_limit = static_cast<double>((*asked_.memory.budget).count);
}

planning::FixedLayout LayoutSearch::fixed() const {
  planning::FixedLayout out;
  const auto given = [&](const char* key) {
    return std::any_of(sets_.begin(), sets_.end(),
                       [&](const std::string& set) { return set.starts_with(std::string(key) + "="); });
  };
  const config::ParallelTable& keys = asked_.parallel;
  const auto take = [&](const char* key, int64_t value, std::optional<int64_t>& to) {
    if (given(key) && value > 0) to = value;
  };
  take("parallel.tensor", keys.tensor, out.tensor);
  take("parallel.pipeline", keys.pipeline, out.pipeline);
  take("parallel.context", keys.context, out.context);
  take("parallel.expert", keys.expert, out.expert);
  take("parallel.expert_tensor", keys.expert_tensor, out.expert_tensor);
  take("parallel.overlap_chunks", keys.overlap_chunks, out.overlap_chunks);
  if (!keys.sequence) out.overlap_chunks = 1;
  take("parallel.virtual_stages", keys.virtual_stages, out.virtual_stages);
  if (given("parallel.zero") && !keys.zero.is_word()) out.zero = *keys.zero;
  if (given("parallel.schedule")) {
    out.schedule = schedule_of_key(keys.schedule);
    out.interleaved = keys.schedule == "interleaved" || keys.schedule == "interleaved_zb";
  }
  if (given("training.micro_batch_size") && !asked_.training.micro_batch_size.is_word())
    out.micro_batch = *asked_.training.micro_batch_size;
  if (given("memory.recompute") && !asked_.memory.recompute.is_word()) {
    const program::Recompute recompute = *asked_.memory.recompute;
    out.recompute = recompute == program::Recompute::kFull        ? planning::Recompute::kFull
                    : recompute == program::Recompute::kSelective ? planning::Recompute::kSelective
                                                                  : planning::Recompute::kNone;
  }
  return out;
}

}  // namespace strata::library
