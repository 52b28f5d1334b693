// strata bench ranks: two ranks with half the threads each against one rank with all, and how soon many ranks
// begin.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"

namespace strata::benchmarks {
namespace {

constexpr int kTurns = 10, kStarts = 5, kManyRanks = 64;
constexpr int64_t kSteps = 3;  // of a run; the first is not counted

struct Layout {
  const char* name;
  const char* sets;  // of [parallel]
  Launch launch;
  double goal;  // of one rank's tokens a second
};
constexpr std::array<Layout, 4> kLayouts = {{{"one rank", "parallel.zero=0", {}, 0},
                                             {"data parallel, local", "parallel.zero=0", {2, false}, 0.9},
                                             {"ZeRO-3, local", "parallel.zero=3", {2, false}, 0.9},
                                             {"ZeRO-3, MPI", "parallel.zero=3", {2, true}, 0.85}}};

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// Tokens a second by layout, of each turn; none for those that cannot be started here.
std::array<std::vector<double>, kLayouts.size()> measure_layouts(const std::vector<std::string>& sets) {
  const config::RunConfig config = config::parse_run_config("", "strata bench", sets);
  const auto tokens =
      static_cast<double>(config.training.global_batch_size * config.training.sequence_length);
  std::array<std::vector<double>, kLayouts.size()> rates;
  const bool processes = has_mpirun();
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < kLayouts.size(); ++i) {
      if (kLayouts[i].launch.by_mpirun && !processes) continue;
      const ChildRun run = run_child(joined(sets, {kLayouts[i].sets}), kSteps, kLayouts[i].launch);
      rates[i].push_back(tokens / run.whole_step_seconds);
    }
  }
  return rates;
}

void layouts(BenchContext& context, const std::vector<std::string>& sets) {
  const auto rates = measure_layouts(sets);
  for (size_t i = 0; i < kLayouts.size(); ++i) {
    if (rates[i].empty()) {
      context.print("  {:<24} not measured: there is no mpirun\n", kLayouts[i].name);
      continue;
    }
    std::vector<double> shares;
    for (size_t turn = 0; turn < rates[i].size(); ++turn) shares.push_back(rates[i][turn] / rates[0][turn]);
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    context.print("  {:<24} {:>9.1f} tokens/s", kLayouts[i].name, median(rates[i]));
    if (i > 0)
      context.print("  {:>6.1f} % of one rank (goal {:.0f} %; turns {:.1f} to {:.1f})", 100 * median(shares),
                    100 * kLayouts[i].goal, 100 * *least, 100 * *most);
    context.print("\n");
    context.result["layouts"][kLayouts[i].name] = {
        {"tokens_per_s", rates[i]}, {"of_one_rank", median(shares)}, {"goal", kLayouts[i].goal}};
  }
}

void starts(BenchContext& context, const std::vector<std::string>& sets) {
  std::vector<double> one, many;
  for (int i = 0; i < kStarts; ++i) {
    one.push_back(run_child(sets, 2).instruction_seconds);
    many.push_back(run_child(sets, 2, {.ranks = kManyRanks}).instruction_seconds);
  }
  context.print(
      "  first instruction after the process began: {:.2f} s of one rank, {:.2f} s of {} (goal 2 s; ",
      median(one), median(many), kManyRanks);
  const auto [least, most] = std::minmax_element(many.begin(), many.end());
  context.print("{:.2f} to {:.2f})\n", *least, *most);
  context.result["start"] = {{"ranks", kManyRanks}, {"one_rank_seconds", one}, {"seconds", many}};
}

}  // namespace

void bench_ranks(BenchContext& context) {
  const auto sets = joined({"training.sequence_length=512", "training.global_batch_size=8",
                            "training.micro_batch_size=4", "precision.compute=\"fp32\""},
                           context.sets);
  context.print("\n  runs of {} steps, in turns, {} each; medians\n", kSteps, kTurns);
  layouts(context, sets);
  std::vector<std::string> small;
  if (context.sets.empty()) small.emplace_back("model.preset=\"llama3-5m\"");
  small = joined(std::move(small), context.sets);
  // A row for each rank.
  starts(context, joined(std::move(small), {"training.sequence_length=32", "training.micro_batch_size=1",
                                            "training.global_batch_size=" + std::to_string(kManyRanks)}));
}

}  // namespace strata::benchmarks
