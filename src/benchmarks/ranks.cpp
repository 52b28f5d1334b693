// strata bench ranks: two ranks with half the threads each against one rank with all, and the start-up time
// of many ranks.
#include <algorithm>

#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"

namespace strata::benchmarks {
namespace {

constexpr int kTurns = 5, kStarts = 5, kManyRanks = 64;
constexpr int64_t kSteps = 3;  // per run; the first is excluded

struct Layout {
  const char* name;
  std::vector<std::string> sets;  // of [parallel]
  Launch launch;
  double goal;  // relative to one rank's tokens per second
};
// A pipeline of p ranks and m micro-batches is busy m / (m + p - 1) of the time.
constexpr double kPipelineShare = 8.0 / 9;
const std::vector<Layout>& all_layouts() {
  static const std::vector<Layout> kAll{
      {"one rank", {"parallel.zero=0"}, {}, 0},
      {"data parallel, local", {"parallel.zero=0"}, {2, false}, 0.9},
      {"ZeRO-3, local", {"parallel.zero=3"}, {2, false}, 0.9},
      {"ZeRO-3, MPI", {"parallel.zero=3"}, {2, true}, 0.85},
      {"tensor 2", {"parallel.tensor=2"}, {2, false}, 0.8},
      {"context 2, all-gather", {"parallel.context=2"}, {2, false}, 0.8},
      {"context 2, Ulysses", {"parallel.context=2", "parallel.context_kind=\"ulysses\""}, {2, false}, 0.8},
      {"pipeline 2, 8 micro-batches",
       {"parallel.pipeline=2", "training.micro_batch_size=1"},
       {2, false},
       0.8 * kPipelineShare}};
  return kAll;
}

// Tokens per second by layout and turn; empty for layouts that cannot be started here.
std::vector<std::vector<double>> measure_layouts(const std::vector<std::string>& sets) {
  const std::vector<Layout>& all = all_layouts();
  const config::RunConfig config = config::parse_run_config("", "strata bench", sets);
  const auto tokens =
      static_cast<double>(config.training.global_batch_size * config.training.sequence_length);
  std::vector<std::vector<double>> rates(all.size());
  const bool processes = has_mpirun();
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].launch.by_mpirun && !processes) continue;
      const ChildRun run = run_child(joined(sets, all[i].sets), kSteps, all[i].launch);
      rates[i].push_back(tokens / run.whole_step_seconds);
    }
  }
  return rates;
}

void layouts(BenchContext& context, const std::vector<std::string>& sets) {
  const std::vector<Layout>& all = all_layouts();
  const auto rates = measure_layouts(sets);
  for (size_t i = 0; i < all.size(); ++i) {
    if (rates[i].empty()) {
      context.print("  {:<28} not measured: mpirun not found\n", all[i].name);
      continue;
    }
    std::vector<double> shares;
    for (size_t turn = 0; turn < rates[i].size(); ++turn) shares.push_back(rates[i][turn] / rates[0][turn]);
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    context.print("  {:<28} {:>9.1f} tokens/s", all[i].name, median(rates[i]));
    if (i > 0)
      context.print("  {:>6.1f} % of one rank (goal {:.0f} %; turns {:.1f} to {:.1f})", 100 * median(shares),
                    100 * all[i].goal, 100 * *least, 100 * *most);
    context.print("\n");
    context.result["layouts"][all[i].name] = {
        {"tokens_per_s", rates[i]}, {"of_one_rank", median(shares)}, {"goal", all[i].goal}};
  }
}

void starts(BenchContext& context, const std::vector<std::string>& sets) {
  std::vector<double> one, many;
  for (int i = 0; i < kStarts; ++i) {
    one.push_back(run_child(sets, 2).instruction_seconds);
    many.push_back(run_child(sets, 2, {.ranks = kManyRanks}).instruction_seconds);
  }
  context.print(
      "  from process start to first instruction: {:.2f} s with one rank, {:.2f} s with {} (goal 2 s; ",
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
  context.print("\n  runs of {} steps, interleaved, {} of each; medians\n", kSteps, kTurns);
  layouts(context, sets);
  std::vector<std::string> small;
  if (context.sets.empty()) small.emplace_back("model.preset=\"llama3-5m\"");
  small = joined(std::move(small), context.sets);
  // One sequence per rank.
  starts(context, joined(std::move(small), {"training.sequence_length=32", "training.micro_batch_size=1",
                                            "training.global_batch_size=" + std::to_string(kManyRanks)}));
}

}  // namespace strata::benchmarks
