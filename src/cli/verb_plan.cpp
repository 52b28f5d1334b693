// strata plan
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "benchmarks/bench_run.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/values.h"
#include "library/layout_search.h"
#include "plan/amount.h"
#include "plan/claims.h"
#include "plan/guide_curves.h"

namespace strata::cli {
namespace {

struct PlanOptions {
  std::string model = {};
  std::vector<std::string> sets = {};
  std::optional<std::string> tokens = {}, budget = {}, deadline = {};
  std::optional<int64_t> gpus = {};
  std::string cluster = {};
  std::optional<int64_t> tries = {};
  std::string html = {};
  bool hypothetical = false;
  bool check_claims = false;
  bool force = false;
  bool json = false;
};

int check_published_claims(bool json) {
  const std::vector<planning::CheckedClaim> claims = planning::check_claims(planning::builtin_catalogue());
  const std::vector<planning::GuideCurve> curves = planning::guide_curves();
  if (json) {
    nlohmann::ordered_json out = planning::json_of(claims);
    out["curves"] = planning::json_of(curves);
    print_out("{}\n", dump_json(out));
  } else {
    print_out("{}\n{}", to_text(claims), to_text(curves));
  }
  return 0;
}

double dollars_of(const std::string& text) {
  return planning::parse_count("--budget", text.starts_with('$') ? text.substr(1) : text);
}

double seconds_of(const std::string& text) {
  const std::optional<config::Duration> time = config::parse_duration(text);
  if (!time || time->seconds <= 0)
    throw ConfigError("[--deadline] found \"{}\", expected a time such as 30d or 12h", text);
  return time->seconds;
}

// Seconds of a step that runs: synthetic tokens in the sizes of the configuration.
double seconds_of_trial(const config::RunConfig& config, int64_t ranks, const std::string& layout) {
  constexpr int64_t kSteps = 8;  // the first is excluded
  log_info("trying {} for {} steps", layout, kSteps);
  return benchmarks::run_child(config, kSteps, {.ranks = static_cast<int>(ranks)}).steady_step_seconds;
}

int run_plan(const PlanOptions& options) {
  const bool alone = options.model.empty() && options.sets.empty() && !options.tokens && !options.budget &&
                     !options.deadline && !options.gpus && options.cluster.empty() && !options.tries &&
                     options.html.empty() && !options.hypothetical;
  if (options.check_claims) {
    if (!alone)
      throw ConfigError(
          "[--check-claims] found with a model or its options, expected at most --json with it");
    return check_published_claims(options.json);
  }
  if (options.model.empty())
    throw ConfigError(
        "[strata plan] found no model, expected a preset, a folder with config.json or a RUN.toml; or --check-claims");
  if (options.tries && !options.cluster.empty())
    throw ConfigError(
        "[--try] found with --cluster, expected this machine: it runs the layouts for a few steps");
  if (!options.html.empty()) check_output_file("--html", options.html, options.force);
  library::LayoutRequest request{.model = options.model,
                                 .sets = options.sets,
                                 .gpus = options.gpus,
                                 .cluster = options.cluster,
                                 .hypothetical = options.hypothetical};
  if (options.tokens) request.tokens = planning::parse_count("--tokens", *options.tokens);
  if (options.budget) request.budget = dollars_of(*options.budget);
  if (options.deadline) request.deadline = seconds_of(*options.deadline);
  library::LayoutSearch search(request);
  if (options.tries) search.try_layouts(static_cast<size_t>(*options.tries), seconds_of_trial);
  if (!options.html.empty()) write_file_atomically(posix_file_system(), options.html, search.page());
  if (options.json) {
    print_out("{}\n", dump_json(search.json()));
  } else {
    print_out("{}", search.text());
    if (!options.html.empty()) print_out("\npage      {}\n", options.html);
  }
  return 0;
}

}  // namespace

void add_plan(Verb root) {
  auto options = std::make_shared<PlanOptions>();
  Verb verb = root.verb("plan", "Find the fastest layout of a run on a cluster or on this machine",
                        "strata plan llama3.1-70b --cluster h100-sxm --gpus 256 --tokens 1T");
  verb.option("MODEL", options->model, "A preset, a folder with config.json, a RUN.toml or a run's folder")
      .suggest(preset_names());
  verb.sets(options->sets).suggest(configuration_keys());
  verb.option("--tokens", options->tokens,
              "Training tokens: 1T; unset: those of the configuration, or 20 for each active parameter")
      .type_name("N");
  verb.option("--gpus", options->gpus,
              "Number of devices, or of ranks without --cluster; unset: the fewest hosts that hold the model")
      .positive()
      .type_name("N");
  verb.option("--budget", options->budget, "Choose the number of devices that is fastest for this money: $2M")
      .type_name("$");
  verb.option("--deadline", options->deadline,
              "Choose the cheapest number of devices that finishes in this time: 30d")
      .type_name("T");
  verb.option(
          "--cluster", options->cluster,
          "Hosts of this cluster instead of this machine: h100-sxm, …, or a file. --set cluster.KEY=VALUE and "
          "chip.KEY=VALUE change it")
      .type_name("NAME|FILE")
      .suggest(planning::builtin_names("cluster"));
  verb.option("--try", options->tries,
              "Run the first N layouts on this machine for a few steps each; the fastest comes first")
      .positive()
      .type_name("N");
  verb.flag("--hypothetical", options->hypothetical,
            "Also what this version cannot run: fp8, an offloaded optimizer, other devices");
  verb.option("--html", options->html, "Write a page with layout, memory, timeline, costs and sources")
      .type_name("FILE");
  verb.flag(
      "--check-claims", options->check_claims,
      "Print what published claims are off by, and predicted curves of guides next to published points");
  verb.flag("--force", options->force, kForceHelp);
  verb.json(options->json);
  verb.action([options] { return run_plan(*options); });
}

}  // namespace strata::cli
