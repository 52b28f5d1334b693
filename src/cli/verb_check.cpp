// strata check causality, and the group of checks
#include <fmt/core.h>

#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "cli/actions.h"
#include "cli/causality_report.h"
#include "cli/one_process.h"
#include "cli/output.h"
#include "cli/share_done.h"
#include "cli/verbs.h"
#include "config/layout.h"
#include "config/objective.h"
#include "config/plan.h"
#include "evaluation/causality.h"
#include "library/run_inputs.h"
#include "program/initialize.h"

namespace strata::cli {
namespace {

// The subject of the check: a run, or a model as a run would continue it.
struct Subject {
  std::shared_ptr<const config::RunPlan> plan;
  std::string weights;  // for people
  Path folder;          // of weights; empty: first ones
};

// For all places on the pipeline axis, whether they fit memory.budget or not.
std::shared_ptr<const config::RunPlan> plan_all(const config::RunConfig& config,
                                                config::PlanOptions planned) {
  const auto places = config::with_degrees(config, planned.place.ranks).parallel.pipeline;
  planned.places.resize(static_cast<size_t>(std::max<int64_t>(1, places)));
  std::iota(planned.places.begin(), planned.places.end(), 0);
  planned.keep_unfit = true;
  return config::make_plan(config, planned);
}

// Threads of this process, which share the machine.
config::RankPlace place_of(const CausalityCheckOptions& options) {
  return {.ranks = options.ranks, .local_ranks = static_cast<int>(options.ranks)};
}

Subject subject_of_run(const CausalityCheckOptions& options) {
  const config::RunConfig config = library::read_command_config(options.inputs, options.sets);
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(config, hooks);
  evaluation::require_causal_design(config::resolve_model(config));
  Subject subject{plan_all(config, library::options_as_trained(config, place_of(options))), {}, {}};
  const config::RunConfig& chosen = subject.plan->config;
  subject.weights = fmt::format("as a run of seed {} starts", chosen.run.seed);
  if (!chosen.model.from.empty() && chosen.model.init == config::ModelInit::kWeights) {
    subject.folder = config::model_folder(chosen);
    subject.weights = subject.folder.string();
  }
  return subject;
}

// The model in a small training run; keys that were set are validated.
Subject subject_of_model(const CausalityCheckOptions& options) {
  constexpr int64_t kLength = 256, kSequences = 2, kMicroBatches = 2;
  config::RunConfig config = config::config_of_sets(options.sets);
  const inference::ModelRuntime opened = inference::open_model(options.model);
  evaluation::require_causal_design(opened.model);
  config.model.from = opened.folder.string();
  auto& training = config.training;
  if (!config.was_set("training.sequence_length"))
    training.sequence_length = std::min(kLength, opened.model.max_sequence_length());
  const config::RunConfig degrees = config::with_degrees(config, options.ranks);
  if (!config.was_set("training.micro_batch_size")) training.micro_batch_size = kSequences;
  if (!config.was_set("training.global_batch_size")) {
    training.global_batch_size =
        *training.micro_batch_size * kMicroBatches * config::mesh_of(degrees).batch_ranks();
    if (degrees.parallel.pipeline > 1) training.global_batch_size *= degrees.parallel.pipeline;
  }
  // All other keys have their defaults; errors about missing data do not matter here.
  std::vector<config::Issue> issues = config::validate(config);
  config::check_model(config, issues);
  std::erase_if(issues, [](const config::Issue& issue) { return issue.key.starts_with("data"); });
  if (!issues.empty()) config::throw_issues(issues);
  return {plan_all(config, {.files = posix_file_system(),
                            .place = place_of(options),
                            .data = config::PlanOptions::Data::kNone,
                            .model = opened.model}),
          opened.folder.string(), opened.folder};
}

// Returns programs that exceed memory.budget, if there are any.
std::shared_ptr<const program::ProgramSet> unfit_of(const config::RunPlan& plan) {
  for (const auto& [place, compiled] : plan.stages)
    if (!compiled.fits) return compiled.set;
  return nullptr;
}

CausalityAnswer check_program(program::Executor& executor, size_t index, const config::RunConfig& config,
                              const CausalityCheckOptions& options, const std::function<void(double)>& done) {
  CausalityAnswer answer{.request = executor.program(index).request,
                         .batch_parts = executor.set().options.mesh.batch_ranks()};
  answer.found = evaluation::check_causality(executor, index,
                                             {.positions = options.positions,
                                              .documents = config.data.pack != data::Pack::kStream,
                                              .seed = static_cast<uint64_t>(config.run.seed),
                                              .progress = [&](double share) {
                                                // Ranks that wait for this one end with it.
                                                if (stop_requested()) throw Interrupted();
                                                done(share);
                                              }});
  return answer;
}

std::vector<CausalityAnswer> check_as_rank(const Subject& subject, comm::World& world,
                                           const CausalityCheckOptions& options) {
  const config::RunConfig& config = subject.plan->config;
  set_compute_threads(static_cast<int>(*config.device.threads));
  flush_denormals();
  world.configure(config::world_options(config));
  const auto& set =
      subject.plan->set(config::mesh_of(config).coordinates(world.rank())[graph::Axis::kPipeline]);
  const program::Ranks ranks(world, set->options);
  program::Executor executor(set, config::make_device(config), ranks);
  program::write_coordinates(executor);
  program::initialize_weights(executor, static_cast<uint64_t>(config.run.seed));
  if (!subject.folder.empty()) checkpoint::load_hugging_face(subject.folder, subject.plan->model, executor);
  std::vector<CausalityAnswer> answers;
  ShareDone show;
  for (const size_t program : {size_t{config::kTrainProgram}, size_t{config::kEvalProgram}}) {
    executor.run(program, {program::Segment::kEncode});
    answers.push_back(check_program(executor, program, config, options, [&](double share) {
      if (world.rank() == 0) show((static_cast<double>(answers.size()) + share) / 2);
    }));
  }
  return answers;
}

std::vector<CausalityAnswer> check_on_ranks(const Subject& subject, const CausalityCheckOptions& options) {
  std::vector<CausalityAnswer> answers;
  comm::run_local_ranks(static_cast<int>(options.ranks), [&](comm::World& world) {
    auto mine = check_as_rank(subject, world, options);
    if (world.rank() == 0) answers = std::move(mine);
  });
  return answers;
}

// Evaluation only, for a model that cannot be trained in this machine's memory.
std::vector<CausalityAnswer> check_evaluation(const std::string& model, const config::RunConfig& config,
                                              const CausalityCheckOptions& options) {
  inference::ModelRuntime runtime = inference::open_model(model);
  const data::RowShape row = config::row_shape(config, runtime.model);
  inference::load_runtime(runtime, {.compute = config::compute_options(config),
                                    .requests = {{.kind = program::Kind::kEvaluate,
                                                  .sequences = *config.training.micro_batch_size,
                                                  .sequence_length = row.tokens,
                                                  .encoder_length = row.encoder_length}}});
  ShareDone show;
  return {check_program(*runtime.executor, 0, config, options, [&](double share) { show(share); })};
}

}  // namespace

int run_causality_check(const CausalityCheckOptions& options) {
  require_one_process("strata check causality", "; --ranks N makes N ranks of its threads");
  if (options.inputs.empty() == options.model.empty())
    throw ConfigError("[strata check causality] give either a RUN.toml or --model DIR");
  const Subject subject = options.model.empty() ? subject_of_run(options) : subject_of_model(options);
  const config::RunConfig& config = subject.plan->config;
  CausalityReport report{.mesh = config::mesh_of(config),
                         .computed = config::activation_dtype(config),
                         .weights = subject.weights,
                         .documents = config.data.pack != data::Pack::kStream};
  if (const auto unfit = unfit_of(*subject.plan); !unfit) {
    report.answers = check_on_ranks(subject, options);
  } else if (options.model.empty() || options.ranks > 1) {
    throw program::DoesNotFit(unfit);
  } else {
    report.answers = check_evaluation(options.model, config, options);
    report.left_out = "training, whose gradients and optimizer states memory.budget does not hold";
  }
  if (options.json) {
    print_out("{}\n", json_of(report));
  } else {
    print_out("{}", text_of(report));
  }
  return report.exit_code();
}

void add_check(Verb root) {
  Verb check = root.verb("check", "Prove properties of a model", "strata check causality RUN.toml");
  auto options = std::make_shared<CausalityCheckOptions>();
  Verb verb = check.verb("causality",
                         "Prove that no token affects earlier ones; if one does, name the op and exit with 3",
                         "strata check causality RUN.toml --set parallel.tensor=2 --ranks 2");
  verb.option("RUN.toml", options->inputs, "A configuration, the folder of a run, or texts to train on");
  verb.option("--model", options->model, "A model directory, run or checkpoint instead").type_name("DIR");
  verb.sets(options->sets).suggest(configuration_keys());
  verb.option("--ranks", options->ranks, "Number of ranks, as threads of this process")
      .range(1, 1024)
      .type_name("N");
  verb.option("--positions", options->positions, "Number of positions per sequence at which tokens change")
      .positive()
      .show_default()
      .type_name("N");
  verb.json(options->json);
  verb.action([options] { return run_causality_check(*options); });
  add_check_drift(check);
  add_check_precision(check);
}

}  // namespace strata::cli
