// strata bench step, predict: whole training steps, against the GEMM peak and against the prediction.
#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "kernels/cpu/measure.h"
#include "program/cpu_probes.h"
#include "train/bench.h"
#include "train/bench_model.h"
#include "train/reporter.h"

namespace strata::train {
namespace {

constexpr int kMinSteps = 3;
constexpr int kPredictSteps = 2;
constexpr int kMaxSteps = 30;
constexpr double kStepSeconds = 12;  // of steady steps, a case

std::vector<DType> dtypes_of(int threads) {
  std::vector<DType> dtypes{DType::kF32};
  if (hardware::bf16_is_fast(hardware::detect_cpu(threads))) dtypes.push_back(DType::kBF16);
  return dtypes;
}

// Steady steps, each after one repetition of the GEMM.
struct Steps {
  std::vector<double> steps, gemms;
};
Steps steady_steps(BenchModel& model, const cpu::FamilyProbe* gemm, int least = kMinSteps,
                   double budget = kStepSeconds) {
  Steps out;
  model.reset();
  double spent = 0;
  for (int i = 0; i < least || (i < kMaxSteps && spent < budget); ++i) {
    if (gemm != nullptr) {
      const double begin = monotonic_seconds();
      gemm->run();
      out.gemms.push_back(monotonic_seconds() - begin);
    }
    out.steps.push_back(model.step());
    spent += out.steps.back();
  }
  return out;
}

const program::FamilyTotal* find_family(const program::StepTotal& total, const std::string& name) {
  for (const auto& family : total.families) {
    if (family.family == name) return &family;
  }
  return nullptr;
}

void step_case(BenchContext& context, const BenchCase& bench, const cpu::FamilyProbe& gemm) {
  const int64_t before = resident_bytes();
  BenchModel model(bench, context.threads);
  const double first = model.step();
  const Steps steps = steady_steps(model, &gemm);
  const double step = median(steps.steps);
  const double peak = gemm.flops / median(steps.gemms);
  const double rate = model.flops() / step;
  const int64_t resident = resident_bytes() - before;
  const int64_t arena = model.executor().arena_bytes();
  const auto tokens = static_cast<double>(model.tokens());
  context.print("\n{}: {:.1f} ms a step (median of {}), {:.0f} tokens/s\n", bench.name(), 1e3 * step,
                steps.steps.size(), tokens / step);
  context.print(
      "  {:.1f} GFLOP/s of the model's work, {:.1f} % of the best packed GEMM ({:.1f} GFLOP/s, "
      "interleaved)\n",
      rate / 1e9, 100 * rate / peak, peak / 1e9);
  context.print(
      "  first step {:.2f} x a steady one; before it {:.0f} ms: compile {:.0f}, arena and weights {:.0f}\n",
      first / step, 1e3 * (model.compile_seconds() + model.fill_seconds()), 1e3 * model.compile_seconds(),
      1e3 * model.fill_seconds());
  context.print("  arena {}, resident {} more than before it\n", human_bytes(static_cast<double>(arena)),
                human_bytes(static_cast<double>(resident)));
  const program::StepTotal measured = model.measured();
  nlohmann::ordered_json families;
  for (const auto& family : measured.families) {
    context.print("    {:<16} {:>9.2f} ms {:>6.1f} %  {:>8.1f} GFLOP/s {:>7.1f} GB/s\n", family.family,
                  1e3 * family.seconds, 100 * family.seconds / step, family.flops / family.seconds / 1e9,
                  family.bytes / family.seconds / 1e9);
    families[family.family] = family.seconds;
  }
  context.result[bench.name()] = {{"step_seconds", step},
                                  {"steps", steps.steps.size()},
                                  {"tokens_per_s", tokens / step},
                                  {"model_flops_per_s", rate},
                                  {"gemm_flops_per_s", peak},
                                  {"mfu_measured", rate / peak},
                                  {"first_over_steady", first / step},
                                  {"compile_seconds", model.compile_seconds()},
                                  {"fill_seconds", model.fill_seconds()},
                                  {"arena_bytes", arena},
                                  {"resident_bytes", resident},
                                  {"family_seconds", families}};
}

void predict_case(BenchContext& context, const BenchCase& bench, const hardware::DeviceSpec& device) {
  BenchModel model(bench, context.threads);
  const program::StepTotal expected = program::predict_step(model.program(), device);
  model.step();
  const double step = median(steady_steps(model, nullptr, kPredictSteps, 4).steps);
  const program::StepTotal measured = model.measured();
  context.print("\n{}\n  {:<16} {:>14} {:>14} {:>8}\n", bench.name(), "kernel family", "predicted ms",
                "measured ms", "ratio");
  auto& json = context.result[bench.name()];
  auto row = [&](const std::string& name, double predicted, double found) {
    context.print("  {:<16} {:>14.2f} {:>14.2f} {:>8.2f}\n", name, 1e3 * predicted, 1e3 * found,
                  found > 0 ? predicted / found : 0);
    json[name] = {{"predicted_seconds", predicted}, {"measured_seconds", found}};
  };
  for (const auto& family : measured.families) {
    const auto* predicted = find_family(expected, family.family);
    row(family.family, predicted == nullptr ? 0 : predicted->seconds, family.seconds);
  }
  row("step", expected.seconds, step);
}

}  // namespace

void bench_step(BenchContext& context) {
  for (const DType dtype : dtypes_of(context.threads)) {
    const cpu::FamilyProbe gemm = cpu::peak_gemm_probe(dtype);
    step_case(context, {"llama3-29m", 8, 512, dtype}, gemm);
    step_case(context, {"gpt2-124m", 4, 512, dtype}, gemm);
  }
}

void bench_predict(BenchContext& context) {
  const auto device = program::measured_cpu(posix_file_system(), context.threads);
  const DType dtype = dtypes_of(context.threads).back();
  for (const BenchCase& bench :
       {BenchCase{"llama3-5m", 8, 512, dtype}, BenchCase{"llama3-29m", 8, 512, dtype},
        BenchCase{"gpt2-124m", 4, 512, dtype}}) {
    predict_case(context, bench, device);
  }
}

}  // namespace strata::train
