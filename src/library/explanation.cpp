#include "library/explanation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "config/layout.h"
#include "config/objective.h"
#include "config/precision.h"
#include "config/resolve.h"
#include "library/rank_report.h"
#include "library/run_inputs.h"
#include "models/parametrization.h"
#include "plan/catalogue.h"
#include "program/explain.h"
#include "program/memory_report.h"
#include "program/pipeline.h"
#include "program/price.h"
#include "train/copy_plan.h"
#include "train/snapshots.h"

namespace strata::library {
namespace {

// On the pipeline axis.
int32_t place_of(const program::ProgramSet& set) {
  return set.options.pipeline != nullptr ? set.options.pipeline->rank : 0;
}

// Bytes that do not depend on the batch.
int64_t fixed_bytes(const program::ProgramSet& set) {
  int64_t bytes = 0;
  for (const program::Persistent& entry : set.persistent) {
    if (entry.role == graph::Role::kParameter || entry.role == graph::Role::kGradient ||
        entry.role == graph::Role::kState)
      bytes += entry.bytes;
  }
  return bytes;
}

std::vector<Remedy> find_remedies(const config::RunPlan& plan, const program::ProgramSet& set_now) {
  const config::RunConfig& config = plan.config;
  std::vector<Remedy> found;
  const bool hopeless = fixed_bytes(set_now) > (*config.memory.budget).count;
  auto attempt = [&](const std::string& set, const std::function<void(config::RunConfig&)>& change) {
    if (hopeless) return false;
    config::RunConfig changed = config;
    change(changed);
    const program::Compiled result =
        config::compile_run(changed, plan.model, {changed, plan.model}, plan.data.tasks, place_of(set_now),
                            plan.host_ranks, plan.described);
    if (result.fits) found.push_back({set, result.set->arena_bytes});
    return result.fits;
  };
  if (!config.memory.recompute.is_word() && config.memory.recompute != program::Recompute::kFull)
    attempt("memory.recompute=\"auto\"", [](config::RunConfig& c) { c.memory.recompute = {}; });
  for (int64_t size = *config.training.micro_batch_size - 1; size >= 1; --size) {
    if (config.training.global_batch_size % size != 0) continue;
    if (attempt(fmt::format("training.micro_batch_size={}", size),
                [&](config::RunConfig& c) { c.training.micro_batch_size = size; }))
      break;
  }
  for (int64_t length = config.training.sequence_length / 2; length >= 64; length /= 2) {
    if (attempt(fmt::format("training.sequence_length={}", length),
                [&](config::RunConfig& c) { c.training.sequence_length = length; }))
      break;
  }
  found.push_back(
      {fmt::format("memory.budget=\"{} MB\"", set_now.arena_bytes / 1000000 + 1), set_now.arena_bytes});
  return found;
}

// Of a training program, in seconds, with exchanges and waiting between ranks. The plan has all places.
double expected_step(const config::RunPlan& plan, size_t index, const hardware::Machine& machine) {
  return program::price_step(stages_of(plan), index, machine).seconds;
}

std::string programs_text(const program::ProgramSet& set, const hardware::Machine& machine) {
  std::string out =
      "\nAn instruction's operands follow it as NAME TYPE[SHAPE] @BYTE of the arena, results after ->.\n"
      "Phases: F forward, R recompute, I input gradient, W weight gradient, U update, E encode, S setup.\n"
      "memory: how many bytes of its operands are in memory, not in the cache, when it starts.\n";
  for (const program::Program& program : set.programs) out += program::explain_program(program, machine);
  return out;
}

double peak_of(const config::RunConfig& config, const hardware::Machine& machine) {
  const double peak =
      machine.device.gemm_flops[hardware::precision_of(name_of(config::activation_dtype(config)))];
  return peak * static_cast<double>(config::mesh_of(config).ranks());
}

// The steps of a run by their sizes; with a batch that follows the noise scale, as if it stayed small.
std::vector<ExplainedSteps> explain_steps(const config::RunPlan& plan, const Programs& set,
                                          const hardware::Machine& machine) {
  const config::RunConfig& config = plan.config;
  std::vector<ExplainedSteps> all;
  std::map<size_t, double> seconds;  // by program
  const config::Ramps::End end{.steps = std::max<int64_t>(1, config::total_steps(config))};
  for (const config::Ramps::Period& period : config::Ramps(config).periods(0, end)) {
    const size_t index = config::training_program(*set, config, period.size);
    if (!seconds.contains(index)) seconds[index] = expected_step(plan, index, machine);
    all.push_back({period, index, seconds.at(index)});
  }
  return all;
}

// `seconds`: of a step of full size; `machine`: its ranks'.
TimePlan time_of(const config::RunPlan& plan, double seconds, const std::vector<ExplainedSteps>& steps,
                 const hardware::Machine& machine) {
  const config::RunConfig& config = plan.config;
  TimePlan time;
  time.steps = config::total_steps(config);
  time.tokens_per_step = config.training.global_batch_size * config.training.sequence_length;
  time.step_seconds = seconds;
  for (const ExplainedSteps& one : steps)
    time.run_seconds += one.step_seconds * static_cast<double>(one.period.steps);
  const data::RowShape row = config::row_shape(config, plan.model);
  const auto tokens = static_cast<double>(time.tokens_per_step);
  time.flops_per_step = models::training_flops_per_token(plan.model, config.training.sequence_length,
                                                         row.tokens, row.target_share) *
                        tokens;
  if (seconds <= 0) return time;
  time.tokens_per_second = tokens / seconds;
  const double peak = peak_of(config, machine);
  time.mfu = peak > 0 ? time.flops_per_step / seconds / peak : 0;
  return time;
}

}  // namespace

std::string machine_text(const hardware::Machine& machine) {
  const hardware::DeviceSpec& device = machine.device;
  const double f32 = device.gemm_flops[hardware::Precision::kFp32] / 1e9,
               bf16 = device.gemm_flops[hardware::Precision::kBf16] / 1e9;
  if (device.kind == "cpu") {
    return fmt::format(
        "Machine: {}, {} threads, {}; GEMM {:.0f} GFLOP/s bf16, {:.0f} fp32; memory {:.0f} GB/s, cache {:.0f}\n",
        device.name, device.threads, device.isa.str(), bf16, f32, device.memory_bytes_per_s / 1e9,
        device.cache_bytes_per_s / 1e9);
  }
  std::string out =
      fmt::format("Machine: {}; large GEMMs {:.0f} TFLOP/s bf16, {:.0f} fp32; memory {:.0f} GB/s",
                  device.name, bf16 / 1e3, f32 / 1e3, device.memory_bytes_per_s / 1e9);
  for (const hardware::LinkLevel& link : machine.links) {
    const std::string size =
        link.size == hardware::LinkLevel::kAll ? "" : fmt::format(" among {}", link.size);
    out += fmt::format("; {} {:.0f} GB/s{}", link.name, link.bandwidth.value * link.achievable.value / 1e9,
                       size);
  }
  out += "\n";
  if (device.kind == "gpu") out += "  the kernels of GPUs have not run on hardware yet (docs/gpu.md)\n";
  return out;
}

std::vector<Programs> stages_of(const config::RunPlan& plan) {
  std::vector<Programs> sets;
  for (const auto& [place, compiled] : plan.stages) sets.push_back(compiled.set);
  return sets;
}

int32_t place_of_rank(const config::RunConfig& asked, int64_t ranks, int64_t rank) {
  const graph::Mesh mesh = config::mesh_of(config::with_degrees(asked, ranks));
  return mesh.coordinates(rank)[graph::Axis::kPipeline];
}

std::vector<int32_t> places_from(const config::RunConfig& asked, int64_t ranks, int32_t first) {
  std::vector<int32_t> places{first};
  const int64_t all = config::with_degrees(asked, ranks).parallel.pipeline;
  for (int32_t place = 0; place < all; ++place)
    if (place != first) places.push_back(place);
  return places;
}

std::shared_ptr<const config::RunPlan> plan_as_trained(const config::RunConfig& asked, int64_t ranks,
                                                       std::vector<int32_t> places) {
  config::PlanOptions planned = options_as_trained(asked, {.ranks = ranks});
  planned.places = std::move(places);
  planned.keep_unfit = true;
  return config::make_plan(asked, planned);
}

std::shared_ptr<const config::RunPlan> plan_on(const config::RunConfig& asked, int64_t ranks,
                                               std::vector<int32_t> places, const std::string& name,
                                               const std::vector<std::string>& sets) {
  if (name.empty()) {
    if (!sets.empty())
      throw ConfigError("[--set] found {}, which describes a cluster: add --cluster NAME or FILE",
                        sets.front());
    return plan_as_trained(asked, ranks, std::move(places));
  }
  return plan_on(asked, ranks, std::move(places), planning::resolve_cluster(name, sets));
}

std::shared_ptr<const config::RunPlan> plan_on(const config::RunConfig& asked, int64_t ranks,
                                               std::vector<int32_t> places,
                                               const hardware::ClusterSpec& cluster) {
  const auto local = static_cast<int>(std::min(ranks, cluster.devices_per_host));
  return config::make_plan(asked, {.files = posix_file_system(),
                                   .place = {.ranks = ranks, .local_ranks = local},
                                   .data = config::PlanOptions::Data::kFromWhatIsThere,
                                   .places = std::move(places),
                                   .described = hardware::Machine(cluster, ranks),
                                   .keep_unfit = true});
}

hardware::Machine machine_of(const config::RunPlan& plan) {
  if (plan.described) return *plan.described;
  return config::make_device(plan.config)->measured(posix_file_system());
}

Explanation::Explanation(std::shared_ptr<const config::RunPlan> plan, int64_t rank)
    : plan_(std::move(plan)), rank_(rank), machine_(machine_of(*plan_)) {
  const int32_t place = config::mesh_of(plan_->config).coordinates(rank)[graph::Axis::kPipeline];
  const program::Compiled& compiled = plan_->stages.at(place);
  programs_ = compiled.set;
  fits_ = compiled.fits;
  if (plan_->tight_place && *plan_->tight_place != place) tight_place_ = *plan_->tight_place;
  steps_ = explain_steps(*plan_, programs_, machine_);
  time_ = time_of(*plan_, expected_step(*plan_, config::kTrainProgram, machine_), steps_, machine_);
  if (!fits_) remedies_ = find_remedies(*plan_, *programs_);
}

MemoryPlan Explanation::memory() const {
  return {.bytes = programs_->arena_bytes,
          .fixed = fixed_bytes(*programs_),
          .saves = program::save_staging_bytes(*programs_),
          .budget = (*plan_->config.memory.budget).count,
          .fits = fits_ && tight_place_ < 0};
}

namespace {

std::string recovery_line(const config::RecoveryTable& keys, const program::ProgramSet& set) {
  const int64_t count = training::snapshots_kept(keys);
  const std::string bytes = human_bytes(static_cast<double>(training::snapshot_bytes(keys, set)));
  std::string from = "goes back to checkpoints";
  if (training::has_snapshots(keys, set)) {
    from = fmt::format("{} more for {} snapshots to go back to, one every {}", bytes, count,
                       to_string(keys.snapshot));
  } else if (count > 0) {
    from += fmt::format(": {} snapshots take {}", count, bytes);
    if (keys.in_memory.is_word()) from += ", more than memory.budget leaves";
  }
  return fmt::format("{:<8} {}\n", "recovery",
                     keys.rules == config::RecoveryRules::kNone ? "none: the run only reports" : from);
}

std::string copies_line(const config::RecoveryTable& keys, const program::ProgramSet& set) {
  if (keys.copies.kind == config::Interval::Kind::kNever) return "";
  const int64_t bytes = training::copy_bytes(set);
  const bool is_auto = keys.copies.kind == config::Interval::Kind::kAuto;
  std::string text = fmt::format(
      "{} in /dev/shm for two copies of each rank's state, {}{}", human_bytes(static_cast<double>(bytes)),
      is_auto ? "under strata launch, " : "", training::interval_in_words(keys.copies));
  if (is_auto && !training::budget_holds_copies(keys, set, bytes))
    text = "none: " + text + ", more than memory.budget leaves";
  return fmt::format("{:<8} {}\n", "copies", text);
}

}  // namespace

// The most important results: memory, time, tokens.
std::string Explanation::summary() const {
  const config::RunConfig& config = plan_->config;
  const models::ModelConfig& model = plan_->model;
  std::string out;
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  out += fmt::format("{:<8} {}{}, {} layers of width {}, vocabulary {}\n", "model",
                     config.model.preset.empty() ? "" : config.model.preset + ", ",
                     models::parameters_in_words(model), models::layers_of(model), model.hidden_size,
                     model.vocab_size);
  const program::ProgramSet& set = *programs_;
  out += fmt::format(
      "{:<8} {} of {} (memory.budget){}: {} for weights, gradients and optimizer, {} for batches, "
      "activations and scratch; recompute {}\n",
      "memory", bytes(set.arena_bytes), bytes((*config.memory.budget).count),
      fits_ ? "" : ", which does not fit", bytes(fixed_bytes(set)), bytes(set.arena_bytes - fixed_bytes(set)),
      name_of(set.programs[config::kTrainProgram].recompute));
  if (fits_ && tight_place_ >= 0) {
    const int64_t rank = tight_place_ * (set.options.mesh.ranks() / config.parallel.pipeline);
    out += fmt::format("{:<8} rank {} does not fit: see --rank {}, or --rank all for every stage\n", "", rank,
                       rank);
  }
  const int64_t staging = program::save_staging_bytes(set);
  out += fmt::format(
      "{:<8} during training; {}\n", "saves",
      staging > 0 ? fmt::format("{} more for copies, so that an update need not wait", bytes(staging))
                  : "the budget is too small for a copy, so an update waits for a save to read everything");
  out += recovery_line(config.recovery, set) + copies_line(config.recovery, set);
  const auto step_tokens = static_cast<double>(time_.tokens_per_step);
  const double seconds = time_.step_seconds;
  out += fmt::format("{:<8} {}, {} tokens, {} tokens/s, {:.1f} % of the GEMM peak\n", "step",
                     seconds < 60 ? fmt::format("{:.4g} ms", 1e3 * seconds) : human_duration(seconds),
                     human_count(step_tokens),
                     time_.tokens_per_second < 1 ? fmt::format("{:.2g}", time_.tokens_per_second)
                                                 : human_count(time_.tokens_per_second),
                     100 * time_.mfu);
  double tokens = 0;
  for (const ExplainedSteps& one : steps_)
    tokens +=
        static_cast<double>(one.period.steps * one.period.size.sequences * config.training.sequence_length);
  out += fmt::format("{:<8} {} steps, {} tokens, {}, without evaluations and checkpoints\n", "run",
                     time_.steps, human_count(tokens), human_duration(time_.run_seconds));
  return out;
}

// The steps of the ramps, if there are any.
std::string Explanation::ramp() const {
  const config::RunConfig& config = plan_->config;
  if (config::step_sizes(config).size() < 2) return {};
  std::string out = "\nSteps by their sizes, expected\n";
  for (const ExplainedSteps& one : steps_) {
    const config::Ramps::Period& period = one.period;
    const program::Program& program = programs_->programs[one.program];
    out += fmt::format(
        "  steps {} to {}: {} sequences of {} tokens, {} micro-batches of {}; {:.4g} ms, workspace {}\n",
        period.steps_before + 1, period.steps_before + period.steps,
        period.size.sequences * (config.training.sequence_length / period.size.length), period.size.length,
        program.request.micro_batches, program.request.sequences, 1e3 * one.step_seconds,
        human_bytes(static_cast<double>(program::workspace_bytes(program))));
  }
  if (config.training.batch_ramp.is_word()) {
    out += fmt::format("  batches double with the noise scale: {} sequences of {} tokens\n",
                       fmt::join(config::batch_sizes(config), ", "), config.training.sequence_length);
  }
  return out;
}

// Changes that make it fit.
std::string Explanation::remedies() const {
  if (fits_) return {};
  const config::RunConfig& config = plan_->config;
  std::string out;
  out += fmt::format(
      "\nIt does not fit: {} are needed and memory.budget allows {}. One of these makes it fit:\n",
      human_bytes(static_cast<double>(programs_->arena_bytes)),
      human_bytes(static_cast<double>((*config.memory.budget).count)));
  for (const Remedy& way : remedies_)
    out +=
        fmt::format("  --set {:<36} arena {}\n", way.set, human_bytes(static_cast<double>(way.arena_bytes)));
  if (remedies_.size() == 1) {
    out += fmt::format("  or a smaller model: weights, gradients and optimizer state need {} in any case\n",
                       human_bytes(static_cast<double>(programs_->persistent_bytes)));
  }
  return out;
}

std::string Explanation::setting() const {
  const config::RunConfig& config = plan_->config;
  const models::ModelConfig& model = plan_->model;
  std::string out;
  out += fmt::format("\nStart: {}", models::name_of(model.init));
  if (model.init != models::InitScheme::kSmallWang && model.init != models::InitScheme::kMitchell)
    out += fmt::format(", standard deviation {:g}", model.init_std);
  if (const double m = models::width_mult(model); model.mup.base_hidden_size > 0) {
    out += fmt::format("; µP: {:g} times the base width {}; hidden matrices learn at {:g} of the rate", m,
                       model.mup.base_hidden_size, 1 / m);
  }
  out += "\n";
  const data::RowShape row = config::row_shape(config, model);
  out += fmt::format("Batch: {} sequences of {} tokens{}, {} per micro-batch; computed in {}{}\n",
                     config.training.global_batch_size, config.training.sequence_length,
                     row.encoder_length > 0 ? fmt::format(" and {} in the decoder", row.tokens) : "",
                     *config.training.micro_batch_size, name_of(config::activation_dtype(config)),
                     config::computes_in_codes(config)
                         ? fmt::format(", matmuls in {}", config::precision_in_words(config))
                         : "");
  out += machine_text(machine_);
  return out;
}

std::string Explanation::choices() const {
  if (plan_->choices.empty()) return {};
  std::string out = "\nChoices, with the values they replace\n";
  for (const config::Choice& one : plan_->choices)
    out += fmt::format("  {} = {} ({}): {}\n", one.key, one.value, one.from.empty() ? "unset" : one.from,
                       one.why);
  return out;
}

std::string Explanation::text(bool with_programs) const {
  const auto total = program::predict_step(programs_->programs[config::kTrainProgram], machine_);
  return summary() + remedies() + setting() + ramp() + choices() + program::explain_gathers(*programs_) +
         program::explain_memory(*programs_) +
         fmt::format("\nA training step{}, expected\n{}",
                     plan_->config.parallel.pipeline > 1 ? " of this rank, without waiting" : "",
                     program::explain_totals(total).substr(1)) +
         (with_programs ? programs_text(*programs_, machine_) : "") + ranks_text(*programs_, rank_);
}

nlohmann::ordered_json Explanation::json() const {
  auto json = parse_json<nlohmann::ordered_json>(program::explain_json(*programs_, machine_));
  json["memory_budget"] = (*plan_->config.memory.budget).count;
  json["fits"] = memory().fits;
  const config::RecoveryTable& recovery = plan_->config.recovery;
  json["snapshots"] = {{"count", training::snapshots_kept(recovery)},
                       {"bytes", training::snapshot_bytes(recovery, *programs_)},
                       {"in_memory", training::has_snapshots(recovery, *programs_)}};
  json["copies"] = {{"interval", config::to_string(recovery.copies)},
                    {"bytes", training::copy_bytes(*programs_)}};
  json["choices"] = nlohmann::ordered_json::array();
  for (const config::Choice& one : plan_->choices)
    json["choices"].push_back({{"key", one.key}, {"value", one.value}, {"from", one.from}, {"why", one.why}});
  for (const Remedy& way : remedies_)
    json["would_fit"].push_back({{"set", way.set}, {"arena_bytes", way.arena_bytes}});
  if (programs_->options.mesh.ranks() > 1) json["ranks"] = ranks_json(*programs_, rank_);
  if (config::step_sizes(plan_->config).size() > 1) {
    json["ramp"] = nlohmann::ordered_json::array();
    for (const ExplainedSteps& one : steps_) {
      const program::Program& program = programs_->programs[one.program];
      json["ramp"].push_back({{"first_step", one.period.steps_before + 1},
                              {"steps", one.period.steps},
                              {"tokens_before", one.period.tokens},
                              {"samples", one.period.size.sequences},
                              {"length", one.period.size.length},
                              {"micro_batches", program.request.micro_batches},
                              {"program", one.program},
                              {"workspace_bytes", program::workspace_bytes(program)},
                              {"step_seconds", one.step_seconds}});
    }
  }
  json["expected"] = {{"step_seconds", time_.step_seconds},
                      {"tokens_per_s", time_.tokens_per_second},
                      {"model_flops", time_.flops_per_step},
                      {"mfu_measured", time_.mfu}};
  return json;
}

}  // namespace strata::library
