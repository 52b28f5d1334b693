// strata bench monitors: what watching a run costs.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/benchmarks.h"
#include "config/config.h"
#include "ops/statistics/statistics.h"
#include "optim/scalars/scalars.h"
#include "program/statistics.h"
#include "train/layer_statistics.h"

namespace strata::benchmarks {
namespace {

constexpr int kPairs = 60, kStepsOfPair = 2;

int64_t mask_of(std::initializer_list<program::StatisticsGroup> groups) {
  int64_t mask = 0;
  for (const program::StatisticsGroup group : groups) mask |= program::bit_of(group);
  return mask;
}

// Seconds of the instructions of a step, since the last reset.
struct Measured {
  double all = 0;
  double statistics = 0;  // of the instructions that measure
  double digest = 0;      // of the digest, beyond the norm of the weights
};
Measured measured_by(const BenchModel& model) {
  Measured seconds;
  double norms = 0, with_digests = 0;
  const program::StepTotal total = model.measured(BenchModel::By::kOp);
  for (const program::FamilyTotal& op : total.families) {
    seconds.all += op.seconds;
    if (op.family == ops::Statistics::def.name || op.family == ops::TakeSample::def.name ||
        op.family == ops::SampleChange::def.name)
      seconds.statistics += op.seconds;
    if (op.family == ops::JoinDigests::def.name) seconds.digest += op.seconds;
    if (op.family == optim::SumOfSquares::def.name) norms += op.seconds;
    if (op.family == ops::SquaresAndDigests::def.name) with_digests += op.seconds;
  }
  // Gradients, which have no digest, are as many as weights.
  seconds.digest += std::max(0.0, with_digests - norms);
  return seconds;
}

// Median of values and an interval that holds it with a probability of 95 %, by ranks.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
};
MedianInterval interval_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto rank = [&](double at) { return values[static_cast<size_t>(std::clamp(at, 0.0, n - 1))]; };
  return {strata::benchmarks::median(values), rank(std::floor(n / 2 - 0.98 * std::sqrt(n))),
          rank(std::ceil(n / 2 + 0.98 * std::sqrt(n)) - 1)};
}

}  // namespace

void bench_monitors(BenchContext& context) {
  const BenchCase bench = !context.sets.empty()
                              ? case_of_sets(context.sets)
                              : preset_case("llama3-29m", 4, 512, fast_dtypes(context.threads).back());
  BenchModel model(bench, context.threads);
  const auto watch = [&](int64_t mask) { program::write_statistics_mask(model.executor(), 0, mask); };
  const int64_t all_on = mask_of({program::StatisticsGroup::kWeights, program::StatisticsGroup::kActivations,
                                  program::StatisticsGroup::kNoise});
  // With defaults a run measures once per this number of steps.
  const int64_t every = config::steps_between(config::LogTable().layers);

  model.step();
  model.reset();
  for (int64_t step = 1; step <= 2 * every; ++step) {
    watch(step % every == 0 ? all_on : 0);
    model.step();
  }
  const Measured seconds = measured_by(model);
  const double share = (seconds.statistics + seconds.digest) / seconds.all;

  std::vector<double> differences;
  for (int pair = 0; pair < kPairs; ++pair) {
    double on = 0, off = 0;
    for (const bool is_on : {pair % 2 == 0, pair % 2 != 0}) {
      watch(is_on ? all_on : 0);
      for (int step = 0; step < kStepsOfPair; ++step) (is_on ? on : off) += model.step();
    }
    differences.push_back((on - off) / off);
  }
  watch(0);
  const MedianInterval full = interval_of(std::move(differences));
  const double part = 1 / static_cast<double>(every);

  const auto percent = [](double value) { return fmt::format("{:.3f} %", 100 * value); };
  context.print("\n{}, one step in {} measured\n", bench.name(), every);
  context.print("  {:<52} {:>12}\n", "step, instructions", fmt::format("{:.2f} ms", 1e3 * seconds.all));
  context.print("  {:<52} {:>12}\n", "statistics", percent(seconds.statistics / seconds.all));
  context.print("  {:<52} {:>12}\n", "digest of the weights", percent(seconds.digest / seconds.all));
  context.print("  {:<52} {:>12}\n", "both, as a share of the step", percent(share));
  context.print("  {} pairs of {} steps that measure everything and {} that do not:\n", kPairs, kStepsOfPair,
                kStepsOfPair);
  context.print("  {:<52} {:>12} ({} to {})\n", "difference, median and 95 % interval", percent(full.median),
                percent(full.low), percent(full.high));
  context.print("  {:<52} {:>12} ({} to {})\n", fmt::format("one step in {}", every),
                percent(part * full.median), percent(part * full.low), percent(part * full.high));
  auto& json = context.result[bench.name()];
  json["step_seconds"] = seconds.all;
  json["every"] = every;
  json["statistics_share"] = seconds.statistics / seconds.all;
  json["digest_share"] = seconds.digest / seconds.all;
  json["share"] = share;
  const auto put = [&](const char* name, double factor) {
    json[name] = {{"median", factor * full.median}, {"low", factor * full.low}, {"high", factor * full.high}};
  };
  json["pairs"] = kPairs;
  put("difference_measuring", 1);
  put("difference", part);
}

}  // namespace strata::benchmarks
