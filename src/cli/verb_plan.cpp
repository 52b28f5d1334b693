// strata plan
#include "base/error.h"
#include "base/json.h"
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
  bool check_claims = false;
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

int run_plan(const PlanOptions& options) {
  const bool alone = options.model.empty() && options.sets.empty() && !options.tokens && !options.budget &&
                     !options.deadline && !options.gpus && options.cluster.empty();
  if (options.check_claims) {
    if (!alone)
      throw ConfigError(
          "[--check-claims] found with a model or its options, expected at most --json with it");
    return check_published_claims(options.json);
  }
  if (options.model.empty())
    throw ConfigError(
        "[strata plan] found no model, expected a preset, a folder with config.json or a RUN.toml; or --check-claims");
  library::LayoutRequest request{
      .model = options.model, .sets = options.sets, .gpus = options.gpus, .cluster = options.cluster};
  if (options.tokens) request.tokens = planning::parse_count("--tokens", *options.tokens);
  if (options.budget) request.budget = dollars_of(*options.budget);
  if (options.deadline) request.deadline = seconds_of(*options.deadline);
  const library::LayoutSearch search(request);
  if (options.json) {
    print_out("{}\n", dump_json(search.json()));
  } else {
    print_out("{}", search.text());
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
  verb.flag(
      "--check-claims", options->check_claims,
      "Print what published claims are off by, and predicted curves of guides next to published points");
  verb.json(options->json);
  verb.action([options] { return run_plan(*options); });
}

}  // namespace strata::cli
