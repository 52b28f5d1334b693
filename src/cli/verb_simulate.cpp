// strata simulate
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/layout.h"
#include "library/run_inputs.h"
#include "library/simulation.h"
#include "plan/fit_profiles.h"

namespace strata::cli {
namespace {

// Whether a row publishes a time or memory to compare with.
bool has_results(const planning::PublishedRun& run) {
  return run.tokens_per_s || run.tokens_per_s_per_gpu || run.tflops_per_gpu || run.mfu || run.step_time_s ||
         run.memory_gb;
}

void price_table(const SimulateOptions& options) {
  const std::vector<planning::PublishedRun> runs =
      planning::parse_runs(read_file(options.runs), options.runs).runs;
  const planning::RunPricer pricer = planning::builtin_pricer();
  if (options.json) {
    for (const planning::PublishedRun& run : runs) print_out("{}\n", to_json(pricer.price(run)));
    return;
  }
  if (std::none_of(runs.begin(), runs.end(), has_results)) {
    print_out("{}", predictions_text(pricer, runs));
    return;
  }
  const planning::ProfileReport report = validate(pricer, runs);
  print_out("{}{}", to_text(report), skipped_text(report));
}

void check_options(const SimulateOptions& options) {
  if (options.inputs.empty() == options.runs.empty()) {
    throw ConfigError("[strata simulate] found {}, expected a configuration or --runs with a table",
                      options.runs.empty() ? "neither" : "both");
  }
  if (!options.runs.empty() && !(options.cluster.empty() && options.sets.empty() && options.trace.empty()))
    throw ConfigError(
        "[strata simulate] --cluster, --set and --trace belong to a configuration, not to --runs");
}

}  // namespace

int run_simulate(const SimulateOptions& options) {
  check_options(options);
  if (!options.runs.empty()) {
    price_table(options);
    return 0;
  }
  const planning::Sets sets = planning::split_sets(options.sets);
  const config::RunConfig asked = library::read_command_config(options.inputs, sets.run);
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(asked, hooks);
  const int64_t ranks = options.ranks.value_or(config::mesh_of(asked).ranks());
  const library::Simulation simulation(
      library::plan_on(asked, ranks, library::places_from(asked, ranks, 0), options.cluster, sets.cluster));
  if (!options.trace.empty()) {
    std::vector<std::string> threads;
    const auto events = simulation.timeline(threads);
    observe::write_trace(posix_file_system(), options.trace, events, "strata simulate", threads);
  }
  if (options.json) {
    print_out("{}\n", dump_json(simulation.json()));
  } else {
    print_out("{}", simulation.text());
  }
  return 0;
}

void add_simulate(Verb root) {
  auto options = std::make_shared<SimulateOptions>();
  Verb verb = root.verb("simulate", "Predict a step in time: of a run on a cluster, or of runs in a table",
                        "strata simulate RUN.toml --cluster h100-sxm --ranks 1024");
  verb.option("RUN.toml", options->inputs, "A configuration, or texts to train on without one");
  verb.sets(options->sets).suggest(configuration_keys());
  verb.option(
          "--cluster", options->cluster,
          "Hosts of this cluster instead of this machine: h100-sxm, …, or a file. --set cluster.KEY=VALUE and "
          "chip.KEY=VALUE change it")
      .type_name("NAME|FILE");
  verb.option("--ranks", options->ranks,
              "Number of ranks, which need not exist; else as many as [parallel] makes")
      .positive()
      .type_name("N");
  verb.option("--trace", options->trace, "Write the step as a timeline for ui.perfetto.dev")
      .type_name("FILE");
  verb.option(
          "--runs", options->runs,
          "A table with the columns of data/planning/published_runs.csv; with results: how far they are off")
      .type_name("FILE.csv");
  verb.json(options->json);
  verb.action([options] { return run_simulate(*options); });
}

}  // namespace strata::cli
