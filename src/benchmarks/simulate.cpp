// strata bench simulate: predicted and measured steps of one rank and of every layout of two ranks, of a dense model
// and of one with experts.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "program/price.h"

namespace strata::benchmarks {
namespace {

constexpr int kTurns = 5;
constexpr int64_t kSteps = 6;  // per run; the first is excluded
constexpr double kMedianGoal = 0.10, kWorstGoal = 0.25, kRegretGoal = 0.05;

struct Layout {
  const char* name;
  std::vector<std::string> sets;
  int ranks = 2;
  int threads = 1;
};

struct Family {
  const char* name;
  std::vector<std::string> sets;
  std::vector<Layout> layouts;
};

std::vector<Layout> dense_layouts() {
  return {{"one rank, one thread", {}, 1, 1},
          {"one rank, two threads", {}, 1, 2},
          {"data", {"parallel.replicate=2", "parallel.zero=0"}},
          {"ZeRO-1", {"parallel.shard=2", "parallel.zero=1"}},
          {"ZeRO-2", {"parallel.shard=2", "parallel.zero=2"}},
          {"ZeRO-3", {"parallel.shard=2", "parallel.zero=3"}},
          {"tensor", {"parallel.tensor=2"}},
          {"context", {"parallel.context=2"}},
          {"pipeline 1f1b", {"parallel.pipeline=2"}},
          {"pipeline interleaved",
           {"parallel.pipeline=2", "parallel.schedule=\"interleaved\"", "parallel.virtual_stages=2"}},
          {"pipeline zb_h1", {"parallel.pipeline=2", "parallel.schedule=\"zb_h1\""}}};
}

std::vector<Family> families() {
  std::vector<Layout> with_experts = dense_layouts();
  with_experts.push_back({"expert", {"parallel.shard=2", "parallel.zero=1", "parallel.expert=2"}});
  return {{"dense", {"model.preset=\"llama3-5m\""}, dense_layouts()},
          {"experts", {"model.preset=\"moe-30m-a10m\""}, std::move(with_experts)}};
}

std::vector<std::string> sets_of(const Family& family, const Layout& layout,
                                 const std::vector<std::string>& more) {
  std::vector<std::string> sets{"training.sequence_length=256",
                                "training.global_batch_size=8",
                                "training.micro_batch_size=1",
                                "memory.recompute=\"none\"",
                                "log.layers=\"never\"",
                                "recovery.snapshot=\"never\"",
                                "device.threads=" + std::to_string(layout.threads)};
  sets = joined(joined(std::move(sets), family.sets), layout.sets);
  return joined(std::move(sets), more);
}

double predicted(const std::vector<std::string>& sets, const Path& folder, int ranks,
                 const hardware::DeviceSpec& device) {
  const config::RunConfig config = bench_config(sets, folder);
  std::vector<int32_t> places;
  for (int32_t place = 0; place < config.parallel.pipeline; ++place) places.push_back(place);
  const auto plan = config::make_plan(config, {.files = posix_file_system(),
                                               .place = {.ranks = ranks, .local_ranks = ranks},
                                               .data = config::PlanOptions::Data::kNone,
                                               .places = places});
  std::vector<std::shared_ptr<const program::ProgramSet>> all;
  for (const auto& [place, compiled] : plan->stages) all.push_back(compiled.set);
  return program::price_step(all, config::kTrainProgram, device).seconds;
}

double load_now() {
  double load[1] = {0};
  return getloadavg(load, 1) == 1 ? load[0] : 0;
}

}  // namespace

void bench_simulate(BenchContext& context) {
  const double load = load_now();
  context.print("\n  runs of {} steps, interleaved, {} of each; medians. Load before: {:.2f}{}\n", kSteps,
                kTurns, load, load > 1 ? ", which disturbs the figures" : "");
  context.result["load"] = load;
  const hardware::DeviceSpec one = measured_rank(1, 1), two = measured_rank(1, 2), pair = measured_rank(2, 1);
  const BenchFolder folder(context.sets);
  std::vector<double> errors;
  for (const Family& family : families()) {
    std::vector<std::vector<double>> seconds(family.layouts.size());
    for (int turn = 0; turn < kTurns; ++turn) {
      for (size_t i = 0; i < family.layouts.size(); ++i) {
        const Layout& layout = family.layouts[i];
        const ChildRun run =
            run_child(sets_of(family, layout, context.sets), kSteps, {.ranks = layout.ranks});
        seconds[i].push_back(run.steady_step_seconds);
      }
    }
    context.print("\n  {:<24} {:>13} {:>13} {:>8}\n", family.name, "predicted ms", "measured ms", "ratio");
    double best_two = 0, first_two = 0, least_predicted = 0;
    for (size_t i = 0; i < family.layouts.size(); ++i) {
      const Layout& layout = family.layouts[i];
      const hardware::DeviceSpec& device = layout.ranks > 1 ? pair : layout.threads > 1 ? two : one;
      const double expected =
          predicted(sets_of(family, layout, context.sets), folder.path(), layout.ranks, device);
      const double found = median(seconds[i]);
      errors.push_back(std::abs(expected / found - 1));
      context.print("  {:<24} {:>13.2f} {:>13.2f} {:>8.2f}\n", layout.name, 1e3 * expected, 1e3 * found,
                    expected / found);
      context.result[family.name][layout.name] = {{"predicted_seconds", expected},
                                                  {"measured_seconds", found}};
      if (layout.ranks != 2) continue;
      if (best_two == 0 || found < best_two) best_two = found;
      if (least_predicted == 0 || expected < least_predicted) {
        least_predicted = expected;
        first_two = found;
      }
    }
    const double regret = first_two / best_two - 1;
    context.print(
        "  the layout of two ranks that is predicted to be fastest takes {:.1f} % longer than the fastest "
        "(goal {:.0f} %)\n",
        100 * regret, 100 * kRegretGoal);
    context.result[family.name]["regret"] = regret;
  }
  const double worst = *std::max_element(errors.begin(), errors.end());
  const double middle = median(errors);
  context.print("\n  error: median {:.1f} % (goal {:.0f}), worst {:.1f} % (goal {:.0f})\n", 100 * middle,
                100 * kMedianGoal, 100 * worst, 100 * kWorstGoal);
  context.result["median_error"] = middle;
  context.result["worst_error"] = worst;
}

}  // namespace strata::benchmarks
