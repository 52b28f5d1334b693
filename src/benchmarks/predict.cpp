// strata bench predict: predicted and measured times.
#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/benchmarks.h"
#include "device/open/open.h"

namespace strata::benchmarks {
namespace {

constexpr int kSteps = 5;

using program::FamilyTotal;
using program::StepTotal;

// Each family with the median of its seconds.
std::vector<FamilyTotal> medians(const std::vector<StepTotal>& steps) {
  std::vector<FamilyTotal> families = steps.front().families;
  for (FamilyTotal& family : families) {
    std::vector<double> seconds;
    for (const StepTotal& step : steps) {
      for (const FamilyTotal& one : step.families) {
        if (one.family == family.family) seconds.push_back(one.seconds);
      }
    }
    family.seconds = median(std::move(seconds));
  }
  return families;
}

const FamilyTotal* find(const std::vector<FamilyTotal>& totals, const std::string& name) {
  const auto it = std::find_if(totals.begin(), totals.end(), [&](const auto& t) { return t.family == name; });
  return it == totals.end() ? nullptr : &*it;
}

void predict_case(BenchContext& context, const BenchCase& bench, const hardware::DeviceSpec& device) {
  BenchModel model(bench, context.threads);
  const StepTotal expected = program::predict_step(model.program(), device);
  model.step();
  std::vector<double> steps;
  std::vector<StepTotal> by_family, by_op;
  for (int i = 0; i < kSteps; ++i) {
    model.reset();
    steps.push_back(model.step());
    by_family.push_back(model.measured());
    by_op.push_back(model.measured(BenchModel::By::kOp));
  }

  context.print("\n{}\n  {:<24} {:>14} {:>14} {:>8}\n", bench.name(), "kernel family", "predicted ms",
                "measured ms", "ratio");
  auto& json = context.result[bench.name()];
  auto row = [&](const char* group, const std::string& name, double predicted, double found) {
    context.print("  {:<24} {:>14.2f} {:>14.2f} {:>8.2f}\n", name, 1e3 * predicted, 1e3 * found,
                  found > 0 ? predicted / found : 0);
    const nlohmann::ordered_json pair{{"predicted_seconds", predicted}, {"measured_seconds", found}};
    if (group == nullptr) {
      json[name] = pair;
    } else {
      json[group][name] = pair;
    }
  };
  auto rows = [&](const char* group, const std::vector<FamilyTotal>& measured,
                  const std::vector<FamilyTotal>& predicted) {
    for (const FamilyTotal& one : measured) {
      const FamilyTotal* const found = find(predicted, one.family);
      row(group, one.family, found == nullptr ? 0 : found->seconds, one.seconds);
    }
  };
  rows("families", medians(by_family), expected.families);
  row(nullptr, "step", expected.seconds, median(steps));
  context.print("\n");
  rows("ops", medians(by_op), expected.ops);
}

}  // namespace

void bench_predict(BenchContext& context) {
  const auto device =
      device::open(device::Kind::kCpu, 0, context.threads)->measured(posix_file_system(), true);
  if (!context.sets.empty()) {
    predict_case(context, case_of_sets(context.sets), device);
    return;
  }
  const DType dtype = fast_dtypes(context.threads).back();
  predict_case(context, preset_case("llama3-5m", 8, 512, dtype), device);
  predict_case(context, preset_case("llama3-29m", 8, 512, dtype), device);
  predict_case(context, preset_case("gpt2-124m", 4, 512, dtype), device);
}

}  // namespace strata::benchmarks
