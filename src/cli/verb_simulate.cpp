// strata simulate
#include <algorithm>

#include "base/error.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "plan/fit_profiles.h"

namespace strata::cli {
namespace {

// Whether a row publishes a time or memory to compare with.
bool has_results(const planning::PublishedRun& run) {
  return run.tokens_per_s || run.tokens_per_s_per_gpu || run.tflops_per_gpu || run.mfu || run.step_time_s ||
         run.memory_gb;
}

}  // namespace

int run_simulate(const SimulateOptions& options) {
  const std::vector<planning::PublishedRun> runs =
      planning::parse_runs(read_file(options.runs), options.runs).runs;
  const planning::RunPricer pricer = planning::builtin_pricer();
  if (options.json) {
    for (const planning::PublishedRun& run : runs) print_out("{}\n", to_json(pricer.price(run)));
    return 0;
  }
  if (std::none_of(runs.begin(), runs.end(), has_results)) {
    print_out("{}", predictions_text(pricer, runs));
    return 0;
  }
  const planning::FitReport report = validate(pricer, runs);
  print_out("{}{}", to_text(report), skipped_text(report));
  return 0;
}

void add_simulate(Verb root) {
  auto options = std::make_shared<SimulateOptions>();
  Verb verb = root.verb("simulate", "Predict step time and memory of runs from tables",
                        "strata simulate --runs published_runs.csv --json");
  verb.option(
          "--runs", options->runs,
          "A table with the columns of data/planning/published_runs.csv; with results: how far they are off")
      .required()
      .type_name("FILE.csv");
  verb.json(options->json);
  verb.action([options] { return run_simulate(*options); });
}

}  // namespace strata::cli
