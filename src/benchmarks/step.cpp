// strata bench step: whole training steps against the GEMM peak, and start-up time.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/json.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/bench_run.h"
#include "benchmarks/benchmarks.h"
#include "device/open/open.h"
#include "train/reporter.h"

namespace strata::benchmarks {
namespace {

constexpr int kMinSteps = 3;
constexpr int64_t kChildSteps = 4;
constexpr int kMaxSteps = 30;
constexpr double kStepSeconds = 12;  // of steady steps, per case

// Steady steps, each preceded by one repetition of the GEMM and one of the triad.
struct Steps {
  std::vector<double> steps, gemms, triads;
};
Steps steady_steps(BenchModel& model, const device::Device& device, const device::PeakProduct& gemm) {
  constexpr int64_t kTriadBytes = int64_t{192} << 20;  // beyond any cache
  const auto triad = device.triad_loop(kTriadBytes);
  Steps out;
  model.reset();
  double spent = 0;
  for (int i = 0; i < kMinSteps || (i < kMaxSteps && spent < kStepSeconds); ++i) {
    const double begin = monotonic_seconds();
    gemm.run();
    out.gemms.push_back(monotonic_seconds() - begin);
    out.triads.push_back(static_cast<double>(kTriadBytes) / triad());
    out.steps.push_back(model.step());
    spent += out.steps.back();
  }
  return out;
}

void step_case(BenchContext& context, const BenchCase& bench, const device::Device& device,
               const device::PeakProduct& gemm) {
  const ChildRun child = run_child(bench.sets, kChildSteps);
  const int64_t before = training::resident_bytes();
  BenchModel model(bench, context.threads);
  const double first = model.step();
  const Steps steps = steady_steps(model, device, gemm);
  const double step = median(steps.steps);
  const double peak = gemm.flops / median(steps.gemms);
  const double triad = median(steps.triads);
  const double rate = model.flops() / step;
  const int64_t resident = training::resident_bytes() - before;
  const int64_t arena = model.executor().arena_bytes();
  const auto tokens = static_cast<double>(model.tokens());
  context.print("\n{}: {:.1f} ms per step (median of {}), {:.0f} tokens/s\n", bench.name(), 1e3 * step,
                steps.steps.size(), tokens / step);
  context.print(
      "  {:.1f} GFLOP/s of model FLOPs, {:.1f} % of the best packed GEMM ({:.1f} GFLOP/s, interleaved)\n",
      rate / 1e9, 100 * rate / peak, peak / 1e9);
  context.print(
      "  strata train on cached tokens: first instruction {:.2f} s after process start, first step {:.2f} x "
      "a steady one, peak resident {}\n",
      child.instruction_seconds, child.first_step_seconds / child.steady_step_seconds,
      human_bytes(static_cast<double>(child.peak_resident_bytes)));
  context.print("  in this process: compile {:.0f} ms, arena and weights {:.0f} ms, first step {:.2f} x\n",
                1e3 * model.compile_seconds(), 1e3 * model.fill_seconds(), first / step);
  context.print("  arena {}, resident size grew by {}\n", human_bytes(static_cast<double>(arena)),
                human_bytes(static_cast<double>(resident)));
  const program::StepTotal measured = model.measured();
  // The last column: a family's share of the step times its share of the peak; its sum is the whole step's.
  context.print("    {:<16} {:>12} {:>8}  {:>16} {:>14}   contribution\n", "", "", "share", "of the peak",
                fmt::format("of {:.1f} GB/s", triad / 1e9));
  nlohmann::ordered_json families, rates;
  for (const auto& family : measured.families) {
    const double flops = family.flops / family.seconds, bytes = family.bytes / family.seconds;
    context.print(
        "    {:<16} {:>9.2f} ms {:>6.1f} %  {:>8.1f} G {:>4.0f} % {:>7.1f} G {:>4.0f} % {:>5.1f} %\n",
        family.family, 1e3 * family.seconds, 100 * family.seconds / step, flops / 1e9, 100 * flops / peak,
        bytes / 1e9, 100 * bytes / triad, 100 * family.flops / step / peak);
    families[family.family] = family.seconds;
    rates[family.family] = {{"of_peak", flops / peak}, {"of_triad", bytes / triad}};
  }
  context.result[bench.name()] = {
      {"step_seconds", step},
      {"steps", steps.steps.size()},
      {"tokens_per_s", tokens / step},
      {"model_flops_per_s", rate},
      {"gemm_flops_per_s", peak},
      {"mfu_measured", rate / peak},
      {"first_over_steady", first / step},
      {"instruction_seconds", child.instruction_seconds},
      {"run_first_over_steady", child.first_step_seconds / child.steady_step_seconds},
      {"run_peak_resident_bytes", child.peak_resident_bytes},
      {"compile_seconds", model.compile_seconds()},
      {"fill_seconds", model.fill_seconds()},
      {"arena_bytes", arena},
      {"resident_bytes", resident},
      {"family_seconds", families},
      {"family_rates", rates},
      {"triad_bytes_per_s", triad}};
}

}  // namespace

std::vector<DType> fast_dtypes(int threads) {
  std::vector<DType> dtypes{DType::kF32};
  if (hardware::bf16_is_fast(device::open(device::Kind::kCpu, 0, threads)->spec()))
    dtypes.push_back(DType::kBF16);
  return dtypes;
}

void bench_step(BenchContext& context) {
  const auto device = device::open(device::Kind::kCpu, 0, context.threads);
  if (!context.sets.empty()) {
    const BenchCase bench = case_of_sets(context.sets);
    step_case(context, bench, *device, device->peak_product(bench.dtype));
    return;
  }
  for (const DType dtype : fast_dtypes(context.threads)) {
    const device::PeakProduct gemm = device->peak_product(dtype);
    step_case(context, preset_case("llama3-29m", 8, 512, dtype), *device, gemm);
    step_case(context, preset_case("gpt2-124m", 4, 512, dtype), *device, gemm);
  }
}

}  // namespace strata::benchmarks
