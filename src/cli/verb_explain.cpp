// strata explain
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "cli/explain_ranks.h"
#include "cli/explain_schedule.h"
#include "cli/output.h"
#include "cli/run_inputs.h"
#include "cli/verbs.h"
#include "config/layout.h"
#include "config/objective.h"
#include "config/plan.h"
#include "models/parametrization.h"
#include "parallel/draw.h"
#include "parallel/schedule_json.h"
#include "program/explain.h"
#include "program/memory_report.h"
#include "program/pipeline.h"

namespace strata::cli {
namespace {

using Programs = std::shared_ptr<const program::ProgramSet>;

// The programs of one rank of a plan. `fits`: whether they fit the budget.
struct Shown {
  Programs set;
  bool fits = true;
  int32_t tight_place = -1;  // another place on the pipeline axis, whose programs exceed the budget
};

Shown shown_of(const config::RunPlan& plan, int32_t place) {
  const program::Compiled& compiled = plan.stages.at(place);
  return {compiled.set, compiled.fits, plan.tight_place.value_or(place) == place ? -1 : *plan.tight_place};
}

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

// One change that makes the programs fit.
struct Remedy {
  std::string set;  // "training.micro_batch_size=2"
  int64_t arena_bytes;
};

std::vector<Remedy> remedies(const config::RunPlan& plan, const Shown& compiled) {
  const config::RunConfig& config = plan.config;
  std::vector<Remedy> found;
  const bool hopeless = fixed_bytes(*compiled.set) > (*config.memory.budget).count;
  auto attempt = [&](const std::string& set, const std::function<void(config::RunConfig&)>& change) {
    if (hopeless) return false;
    config::RunConfig changed = config;
    change(changed);
    const program::Compiled result =
        config::compile_run(changed, plan.model, plan.data.tasks, place_of(*compiled.set), plan.host_ranks);
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
  found.push_back({fmt::format("memory.budget=\"{} MB\"", compiled.set->arena_bytes / 1000000 + 1),
                   compiled.set->arena_bytes});
  return found;
}

struct Expectation {
  double step_seconds, tokens_per_s, flops, flops_per_s, peak;
};

// `seconds`: of a step; `device`: one rank's.
Expectation expect(const config::RunConfig& config, const models::ModelConfig& model, double seconds,
                   const hardware::DeviceSpec& device) {
  const auto tokens =
      static_cast<double>(config.training.global_batch_size * config.training.sequence_length);
  Expectation out{};
  out.step_seconds = seconds;
  const data::RowShape row = config::row_shape(config, model);
  out.flops =
      models::training_flops_per_token(model, config.training.sequence_length, row.tokens, row.target_share) *
      tokens;
  out.tokens_per_s = seconds > 0 ? tokens / seconds : 0;
  out.flops_per_s = seconds > 0 ? out.flops / seconds : 0;
  const double peak =
      config::activation_dtype(config) == DType::kBF16 ? device.gemm_flops_bf16 : device.gemm_flops_f32;
  out.peak = peak * static_cast<double>(config::mesh_of(config).ranks());
  return out;
}

// The most important results: memory, time, tokens.
void print_summary(const config::RunConfig& config, const models::ModelConfig& model, const Shown& compiled,
                   const Expectation& expected) {
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  print_out("{:<8} {}{}, {} layers of width {}, vocabulary {}\n", "model",
            config.model.preset.empty() ? "" : config.model.preset + ", ", models::parameters_in_words(model),
            models::layers_of(model), model.hidden_size, model.vocab_size);
  const program::ProgramSet& set = *compiled.set;
  print_out(
      "{:<8} {} of {} (memory.budget){}: {} for weights, gradients and optimizer, {} for batches, "
      "activations and scratch; recompute {}\n",
      "memory", bytes(set.arena_bytes), bytes((*config.memory.budget).count),
      compiled.fits ? "" : ", which does not fit", bytes(fixed_bytes(set)),
      bytes(set.arena_bytes - fixed_bytes(set)), name_of(set.programs[config::kTrainProgram].recompute));
  if (compiled.fits && compiled.tight_place >= 0) {
    const int64_t rank = compiled.tight_place * (set.options.mesh.ranks() / config.parallel.pipeline);
    print_out("{:<8} rank {} does not fit: see --rank {}, or --rank all for every stage\n", "", rank, rank);
  }
  const int64_t staging = program::save_staging_bytes(set);
  print_out("{:<8} during training; {}\n", "saves",
            staging > 0
                ? fmt::format("{} more for copies, so that an update need not wait", bytes(staging))
                : "the budget is too small for a copy, so an update waits for a save to read everything");
  const int64_t steps = config::total_steps(config);
  const auto step_tokens =
      static_cast<double>(config.training.global_batch_size * config.training.sequence_length);
  const double seconds = expected.step_seconds;
  print_out("{:<8} {}, {} tokens, {} tokens/s, {:.1f} % of the GEMM peak\n", "step",
            seconds < 60 ? fmt::format("{:.4g} ms", 1e3 * seconds) : human_duration(seconds),
            human_count(step_tokens),
            expected.tokens_per_s < 1 ? fmt::format("{:.2g}", expected.tokens_per_s)
                                      : human_count(expected.tokens_per_s),
            expected.peak > 0 ? 100 * expected.flops_per_s / expected.peak : 0);
  print_out("{:<8} {} steps, {} tokens, {}, without evaluations and checkpoints\n", "run", steps,
            human_count(step_tokens * static_cast<double>(steps)),
            human_duration(expected.step_seconds * static_cast<double>(steps)));
}

// Changes that make it fit.
void print_remedies(const config::RunConfig& config, const Shown& compiled, const std::vector<Remedy>& ways) {
  print_out("\nIt does not fit: {} are needed and memory.budget allows {}. One of these makes it fit:\n",
            human_bytes(static_cast<double>(compiled.set->arena_bytes)),
            human_bytes(static_cast<double>((*config.memory.budget).count)));
  for (const Remedy& way : ways)
    print_out("  --set {:<36} arena {}\n", way.set, human_bytes(static_cast<double>(way.arena_bytes)));
  if (ways.size() == 1) {
    print_out("  or a smaller model: weights, gradients and optimizer state need {} in any case\n",
              human_bytes(static_cast<double>(compiled.set->persistent_bytes)));
  }
}

void print_setting(const config::RunConfig& config, const models::ModelConfig& model,
                   const hardware::DeviceSpec& device) {
  print_out("\nStart: {}", models::name_of(model.init));
  if (model.init != models::InitScheme::kSmallWang && model.init != models::InitScheme::kMitchell)
    print_out(", standard deviation {:g}", model.init_std);
  if (const double m = models::width_mult(model); model.mup.base_hidden_size > 0) {
    print_out("; µP: {:g} times the base width {}; hidden matrices learn at {:g} of the rate", m,
              model.mup.base_hidden_size, 1 / m);
  }
  print_out("\n");
  const data::RowShape row = config::row_shape(config, model);
  print_out("Batch: {} sequences of {} tokens{}, {} per micro-batch; computed in {}\n",
            config.training.global_batch_size, config.training.sequence_length,
            row.encoder_length > 0 ? fmt::format(" and {} in the decoder", row.tokens) : "",
            *config.training.micro_batch_size, name_of(config::activation_dtype(config)));
  print_out(
      "Machine: {}, {} threads, {}; GEMM {:.0f} GFLOP/s bf16, {:.0f} fp32; memory {:.0f} GB/s, cache "
      "{:.0f}\n",
      device.name, device.threads, device.isa.str(), device.gemm_flops_bf16 / 1e9,
      device.gemm_flops_f32 / 1e9, device.memory_bytes_per_s / 1e9, device.cache_bytes_per_s / 1e9);
}

void print_choices(const std::vector<config::Choice>& choices) {
  if (choices.empty()) return;
  print_out("\nChoices, with the values they replace\n");
  for (const config::Choice& one : choices)
    print_out("  {} = {} ({}): {}\n", one.key, one.value, one.from.empty() ? "unset" : one.from, one.why);
}

void print_programs(const program::ProgramSet& set, const hardware::DeviceSpec& device) {
  print_out(
      "\nAn instruction's operands follow it as NAME TYPE[SHAPE] @BYTE of the arena, results after ->.\n"
      "Phases: F forward, R recompute, I input gradient, W weight gradient, U update, E encode, S setup.\n"
      "memory: how many bytes of its operands are in memory, not in the cache, when it starts.\n");
  for (const program::Program& program : set.programs)
    print_out("{}", program::explain_program(program, device));
}

void print_text(const config::RunPlan& plan, const Shown& compiled, const Expectation& expected,
                const hardware::DeviceSpec& device, const std::vector<Remedy>& ways, bool programs) {
  const config::RunConfig& config = plan.config;
  const auto total = program::predict_step(compiled.set->programs[config::kTrainProgram], device);
  print_summary(config, plan.model, compiled, expected);
  if (!compiled.fits) print_remedies(config, compiled, ways);
  print_setting(config, plan.model, device);
  print_choices(plan.choices);
  print_out("{}", program::explain_memory(*compiled.set));
  print_out("\nA training step{}, expected\n{}",
            config.parallel.pipeline > 1 ? " of this rank, without waiting" : "",
            program::explain_totals(total).substr(1));
  if (programs) {
    print_programs(*compiled.set, device);
  } else {
    print_out("\n--program shows the instructions, --schedule the order of a step, --json all of it\n");
  }
}

void check_options(const ExplainOptions& options) {
  if (!options.svg.empty() && !options.schedule)
    throw ConfigError("[strata explain] --svg {} draws the schedule: add --schedule", options.svg);
}

// The requested rank; nothing for all of them.
std::optional<int64_t> rank_of(const ExplainOptions& options) {
  if (options.rank.empty()) return 0;
  if (options.rank == "all") return std::nullopt;
  const std::optional<int64_t> rank = config::parse_count(options.rank);
  if (!rank || *rank < 0 || *rank >= options.ranks)
    throw ConfigError("[strata explain] found --rank {}, expected 0 to {} (--ranks {}) or all", options.rank,
                      options.ranks - 1, options.ranks);
  return rank;
}

// The rank's place on the pipeline axis.
int32_t place_of_rank(const config::RunConfig& config, int64_t rank) {
  const graph::Mesh mesh = config::mesh_of(config);
  return mesh.coordinates(rank)[graph::Axis::kPipeline];
}

// For all stages, in their order.
std::vector<Programs> stages_of(const config::RunPlan& plan) {
  std::vector<Programs> sets;
  for (const auto& [place, compiled] : plan.stages) sets.push_back(compiled.set);
  return sets;
}

// The places to compile for, the rank's first.
std::vector<int32_t> places_to_compile(const config::RunConfig& config, int32_t own,
                                       const ExplainOptions& options) {
  std::vector<int32_t> places{own};
  const bool one = options.schedule && options.json && options.svg.empty();
  for (int32_t place = 0; !one && place < config.parallel.pipeline; ++place)
    if (place != own) places.push_back(place);
  return places;
}

// In seconds; for a pipeline including waiting between ranks.
double expected_step(const config::RunPlan& plan, const Programs& set, const hardware::DeviceSpec& device) {
  const program::Program& program = set->programs[config::kTrainProgram];
  if (set->options.pipeline == nullptr) return program::predict_step(program, device).seconds;
  parallel::Costs costs;
  for (const Programs& stage : stages_of(plan)) add_expected_costs(*stage, device, costs);
  double seconds = parallel::simulate(set->options.pipeline->schedule, costs).makespan * 1e-3;
  for (const program::Action& action : program.script) {
    if (program::is_of_micro_batch(action.segment)) continue;
    for (const program::Expected& one : program::predict(program, action.segment, action.accumulates, device))
      seconds += one.seconds;
  }
  return seconds;
}

void show_schedule(const config::RunPlan& plan, const Programs& set, const ExplainOptions& options) {
  const parallel::Schedule schedule = schedule_of(*set);
  if (!options.json || !options.svg.empty()) {
    const auto device = config::make_device(plan.config)->measured(posix_file_system());
    parallel::Costs costs;
    for (const Programs& stage : stages_of(plan)) add_expected_costs(*stage, device, costs);
    const auto simulation = parallel::simulate(schedule, costs);
    const parallel::DrawOptions drawn{.unit = "ms"};
    if (!options.svg.empty())
      write_file_atomically(posix_file_system(), options.svg,
                            parallel::draw_svg(schedule, simulation, drawn));
    if (!options.json) print_out("{}", parallel::draw_text(schedule, simulation, drawn));
  }
  if (options.json) print_out("{}\n", parallel::to_json(schedule));
}

}  // namespace

int run_explain(const ExplainOptions& options) {
  check_options(options);
  const config::RunConfig asked = read_command_config(options.inputs, options.sets);
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(asked, hooks);
  config::PlanOptions planned = options_as_trained(asked, {.ranks = options.ranks});
  const std::optional<int64_t> rank = rank_of(options);
  const config::RunConfig degrees = config::with_degrees(asked, options.ranks);
  const int32_t place = place_of_rank(degrees, rank.value_or(0));
  planned.places = places_to_compile(degrees, place, options);
  planned.keep_unfit = true;
  const auto made = config::make_plan(asked, planned);
  const config::RunPlan& plan = *made;
  const Shown compiled = shown_of(plan, place);
  if (options.schedule) {
    show_schedule(plan, compiled.set, options);
    return 0;
  }
  if (!rank) {
    show_stages(stages_of(plan), options.json);
    return 0;
  }
  const auto device = config::make_device(plan.config)->measured(posix_file_system());
  const std::vector<Remedy> ways = compiled.fits ? std::vector<Remedy>{} : remedies(plan, compiled);
  const Expectation expected =
      expect(plan.config, plan.model, expected_step(plan, compiled.set, device), device);
  if (!options.json) {
    print_text(plan, compiled, expected, device, ways, options.program);
    print_ranks(*compiled.set, *rank);
    return 0;
  }
  auto json = parse_json<nlohmann::ordered_json>(program::explain_json(*compiled.set, device));
  json["memory_budget"] = (*plan.config.memory.budget).count;
  json["fits"] = compiled.fits && compiled.tight_place < 0;
  json["choices"] = nlohmann::ordered_json::array();
  for (const config::Choice& one : plan.choices)
    json["choices"].push_back({{"key", one.key}, {"value", one.value}, {"from", one.from}, {"why", one.why}});
  for (const Remedy& way : ways)
    json["would_fit"].push_back({{"set", way.set}, {"arena_bytes", way.arena_bytes}});
  if (compiled.set->options.mesh.ranks() > 1) json["ranks"] = ranks_json(*compiled.set, *rank);
  json["expected"] = {{"step_seconds", expected.step_seconds},
                      {"tokens_per_s", expected.tokens_per_s},
                      {"model_flops", expected.flops},
                      {"mfu_measured", expected.peak > 0 ? expected.flops_per_s / expected.peak : 0}};
  print_out("{}\n", dump_json(json));
  return 0;
}

void add_explain(Verb root) {
  auto options = std::make_shared<ExplainOptions>();
  Verb verb = root.verb("explain", "Predict a run's memory and duration without running anything",
                        "strata explain RUN.toml --set training.micro_batch_size=4");
  verb.option("RUN.toml", options->inputs, "A configuration, or texts to train on without one").required();
  verb.sets(options->sets).suggest(configuration_keys());
  verb.flag("--schedule", options->schedule, "Only the order of micro-batches in a step");
  verb.flag("--program", options->program, "Also the programs, instruction by instruction");
  verb.option("--ranks", options->ranks, "Number of ranks, which need not exist").positive().type_name("N");
  verb.option("--rank", options->rank, "This rank instead of the first; all: each stage of a pipeline")
      .type_name("R|all");
  verb.option("--svg", options->svg, "With --schedule: also draw it into this file").type_name("FILE");
  verb.json(options->json);
  verb.action([options] { return run_explain(*options); });
}

}  // namespace strata::cli
