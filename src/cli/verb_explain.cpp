// strata explain
#include <fmt/core.h>

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/values.h"
#include "library/explanation.h"
#include "library/rank_report.h"
#include "library/run_inputs.h"
#include "library/schedule_times.h"
#include "parallel/draw.h"
#include "parallel/schedule_json.h"
#include "plan/catalogue.h"

namespace strata::cli {
namespace {

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

void show_schedule(const config::RunPlan& plan, const library::Programs& set, const ExplainOptions& options) {
  const parallel::Schedule schedule = library::schedule_of(*set);
  if (!options.json || !options.svg.empty()) {
    const auto simulation = library::expected_times(library::stages_of(plan), library::machine_of(plan));
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
  const planning::Sets sets = planning::split_sets(options.sets);
  const config::RunConfig asked = library::read_command_config(options.inputs, sets.run);
  const std::optional<int64_t> rank = rank_of(options);
  const config::IssueHook hooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(asked, hooks);
  const int32_t place = library::place_of_rank(asked, options.ranks, rank.value_or(0));
  const bool one = options.schedule && options.json && options.svg.empty();
  const auto places = one ? std::vector{place} : library::places_from(asked, options.ranks, place);
  const auto plan = library::plan_on(asked, options.ranks, places, options.cluster, sets.cluster);
  if (options.schedule) {
    show_schedule(*plan, plan->set(place), options);
    return 0;
  }
  if (!rank) {
    const auto stages = library::stages_of(*plan);
    if (options.json)
      print_out("{}\n", dump_json(library::stages_json(stages)));
    else
      print_out("{}", library::stages_table(stages));
    return 0;
  }
  const library::Explanation explanation(plan, *rank);
  if (options.json) {
    print_out("{}\n", dump_json(explanation.json()));
    return 0;
  }
  print_out("{}", explanation.text(options.program));
  if (!options.program)
    print_out("\n--program shows the instructions, --schedule the order of a step, --json all of it\n");
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
  verb.option("--cluster", options->cluster,
              "Hosts of this cluster instead of this machine: h100-sxm, …, or a file")
      .type_name("NAME|FILE");
  verb.option("--svg", options->svg, "With --schedule: also draw it into this file").type_name("FILE");
  verb.json(options->json);
  verb.action([options] { return run_explain(*options); });
}

}  // namespace strata::cli
