// strata simulate
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/layout.h"
#include "library/calibration.h"
#include "library/run_inputs.h"
#include "library/simulation.h"
#include "library/step_sections.h"
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
  const int asked = (options.inputs.empty() ? 0 : 1) + (options.runs.empty() ? 0 : 1);
  if (asked == 2 || (asked == 0 && options.calibrate.empty()))
    throw ConfigError(
        "[strata simulate] found {}, expected a configuration, --runs with a table, or --calibrate",
        asked == 0 ? "none of them" : "a configuration and --runs");
  const bool of_step = !(options.trace.empty() && options.html.empty());
  if (!options.runs.empty() && !(options.cluster.empty() && options.sets.empty() && !of_step))
    throw ConfigError(
        "[strata simulate] --cluster, --set, --trace and --html belong to a configuration, not to --runs");
  if (options.calibrate.empty() != options.output.empty())
    throw ConfigError("[{}] found without {}, expected both: runs, and the file for the rates that they show",
                      options.output.empty() ? "--calibrate" : "--output",
                      options.output.empty() ? "--output" : "--calibrate");
  if (!options.calibrate.empty() && !options.runs.empty())
    throw ConfigError("[--calibrate] found with --runs, expected runs of this program: their folders");
  if (options.inputs.empty() && of_step)
    throw ConfigError("[strata simulate] --trace and --html belong to a configuration; add RUN.toml");
  if (options.inputs.empty() && options.runs.empty() && options.cluster.empty() && !options.sets.empty())
    throw ConfigError("[--set] found {}, expected RUN.toml or --cluster, to which it belongs",
                      options.sets.front());
  if (!options.html.empty()) check_output_file("--html", options.html, options.force);
  if (!options.output.empty()) check_output_file("--output", options.output, options.force);
}

// Writes the rates that the runs show.
void calibrate(const SimulateOptions& options, const std::optional<planning::ClusterSpec>& cluster) {
  const library::Calibration found(options.calibrate, cluster ? &*cluster : nullptr);
  const std::string extension = found.is_json() ? ".json" : ".toml";
  if (Path(options.output).extension() != extension)
    throw ConfigError("[--output] found {}, expected a name that ends with {}", options.output, extension);
  write_file_atomically(posix_file_system(), options.output, found.file());
  if (!options.inputs.empty()) return;
  if (options.json) {
    print_out("{}\n", dump_json(found.json()));
  } else {
    print_out("{}\ncluster   {}, for --cluster\n", found.text(), options.output);
  }
}

}  // namespace

int run_simulate(const SimulateOptions& options) {
  check_options(options);
  if (!options.runs.empty()) {
    price_table(options);
    return 0;
  }
  const planning::Sets sets = planning::split_sets(options.sets);
  std::optional<planning::ClusterSpec> cluster;
  if (!options.cluster.empty()) cluster = planning::resolve_cluster(options.cluster, sets.cluster);
  if (!options.calibrate.empty()) {
    calibrate(options, cluster);
    if (options.inputs.empty()) return 0;
    cluster = planning::resolve_cluster(options.output);
  }
  const config::RunConfig asked = library::read_command_config(options.inputs, sets.run);
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(asked, hooks);
  const int64_t ranks = options.ranks.value_or(config::mesh_of(asked).ranks());
  const auto places = library::places_from(asked, ranks, 0);
  const library::Simulation simulation(cluster ? library::plan_on(asked, ranks, places, *cluster)
                                               : library::plan_on(asked, ranks, places, "", sets.cluster));
  if (!options.html.empty()) {
    const auto prices =
        cluster ? planning::prices_of(options.cluster.empty() ? planning::builtin_catalogue()
                                                              : planning::catalogue_for(options.cluster),
                                      cluster->chip.name)
                : std::vector<planning::Price>();
    write_file_atomically(posix_file_system(), options.html,
                          library::simulation_page(simulation, cluster ? &*cluster : nullptr, prices));
  }
  if (!options.trace.empty()) {
    std::vector<std::string> threads;
    const auto events = simulation.timeline(threads);
    observe::write_trace(posix_file_system(), options.trace, events, "strata simulate", threads);
  }
  if (options.json) {
    print_out("{}\n", dump_json(simulation.json()));
  } else {
    print_out("{}", simulation.text());
    if (!options.html.empty()) print_out("\npage      {}\n", options.html);
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
  verb.option("--html", options->html, "Write a page with ranks, time, memory, timeline, costs and sources")
      .type_name("FILE");
  verb.option(
          "--runs", options->runs,
          "A table with the columns of data/planning/published_runs.csv; with results: how far they are off")
      .type_name("FILE.csv");
  verb.option("--calibrate", options->calibrate,
              "Fit the machine's rates to steps and traces of these runs, whose folders they are")
      .type_name("RUN…");
  verb.option("--output", options->output, "The file for these rates, which --cluster then takes")
      .type_name("FILE");
  verb.flag("--force", options->force, kForceHelp);
  verb.json(options->json);
  verb.action([options] { return run_simulate(*options); });
}

}  // namespace strata::cli
