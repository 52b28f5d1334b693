// Grouped GEMMs of a mixture of experts, each against a dense GEMM of the same FLOPs, as of a layer in which
// all rows have one weight. The two are interleaved, and the least time of each is used; `of_dense` is the
// ratio of the rates. Routing is balanced, or one expert in eight has about four times the mean. On one
// thread (OMP_NUM_THREADS=1) times are processor time, which other load disturbs less.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <random>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/measure.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

constexpr int64_t kTokens = 4096, kHidden = 512, kFfn = 192, kExperts = 64, kSlots = 8;

double now() {
  if (compute_threads() > 1) return monotonic_seconds();
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

Arena filled(int64_t n) {
  Arena arena(n * 4);
  auto* const floats = reinterpret_cast<float*>(arena.data());
  for (int64_t i = 0; i < n; ++i) floats[i] = static_cast<float>(i % 1021) / 512.0f - 1.0f;
  return arena;
}

// The experts of a token are distinct.
std::vector<int32_t> ids_of(bool balanced) {
  std::vector<int32_t> ids;
  std::mt19937 engine(3);
  for (int64_t token = 0; token < kTokens; ++token) {
    std::vector<int32_t> chosen;
    while (chosen.size() < kSlots) {
      int32_t expert = static_cast<int32_t>(engine() % kExperts);
      if (balanced) {
        expert = static_cast<int32_t>((token * 5 + static_cast<int64_t>(chosen.size()) * 8) % kExperts);
      } else if (engine() % 128 < 64) {
        expert = static_cast<int32_t>(engine() % (kExperts / 8));
      }
      if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
    }
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

struct Named {
  const char* name;
  ExpertsRole role;
  GemmRole dense;
};
constexpr Named kRoles[] = {{"in", ExpertsRole::kIn, GemmRole::kForward},
                            {"in_grad_input", ExpertsRole::kInGradInput, GemmRole::kInputGrad},
                            {"in_grad_weight", ExpertsRole::kInGradWeight, GemmRole::kWeightGrad},
                            {"out", ExpertsRole::kOut, GemmRole::kForward},
                            {"out_grad_input", ExpertsRole::kOutGradInput, GemmRole::kInputGrad},
                            {"out_grad_weight", ExpertsRole::kOutGradWeight, GemmRole::kWeightGrad}};

void measure(benchmark::State& state, const Named& named, bool balanced, DType dtype) {
  const bool in = named.role == ExpertsRole::kIn || named.role == ExpertsRole::kInGradInput ||
                  named.role == ExpertsRole::kInGradWeight;
  const int64_t outputs = in ? 2 * kFfn : kHidden, inputs = in ? kHidden : kFfn, slots = kTokens * kSlots;
  const hardware::DeviceSpec device = describe_device(compute_threads());
  const ExpertsPlan plan = plan_experts({.role = named.role,
                                         .tokens = kTokens,
                                         .k = kSlots,
                                         .experts = kExperts,
                                         .outputs = outputs,
                                         .inputs = inputs,
                                         .dtype = dtype},
                                        device);
  Gemm gemm(plan_gemm({.role = named.dense, .m = slots, .n = outputs, .k = inputs, .dtype = dtype}, device));
  const std::vector<int32_t> ids = ids_of(balanced);
  const Arena x = filled(slots * inputs), y = filled(slots * outputs),
              w = filled(kExperts * outputs * inputs), result(slots * std::max(outputs, inputs) * 4);
  const Arena scratch(std::max(plan.scratch_bytes, gemm.plan().scratch_bytes) + 64);
  const bool forward = named.dense == GemmRole::kForward, weight = named.dense == GemmRole::kWeightGrad;
  const std::byte *const a = forward ? x.data() : y.data(), *const b = weight ? x.data() : w.data();
  // The dense weight as in a step: packed beforehand if the GEMM needs that.
  Arena packed;
  if (!weight) {
    const WeightEncoding encoding = plan_weight_encoding(named.dense, outputs, inputs, dtype, device);
    if (!encoding.plain) {
      packed = Arena(encoding.bytes + 64);
      WeightPacker(encoding).pack(packed.data(), reinterpret_cast<const float*>(w.data()));
    }
  }
  const std::byte* const dense_b = packed.size() > 0 ? packed.data() : b;
  double best = std::numeric_limits<double>::infinity(), best_dense = best;
  for (auto _ : state) {
    double start = now();
    run_experts(plan, a, ids.data(), nullptr, b, result.data(), scratch.data());
    const double seconds = now() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
    start = now();
    gemm.run({.a = a, .b = dense_b, .c = result.data(), .scratch = scratch.data()});
    best_dense = std::min(best_dense, now() - start);
  }
  std::vector<int64_t> counts(kExperts);
  expert_counts(slots, 1, kExperts, counts.data(), ids.data(), nullptr, false);
  const double flops = 2.0 * static_cast<double>(slots * outputs) * static_cast<double>(inputs);
  state.counters["GFLOP/s"] = flops / best * 1e-9;
  state.counters["dense"] = flops / best_dense * 1e-9;
  state.counters["of_dense"] = best_dense / best;
  state.counters["max/mean"] =
      static_cast<double>(*std::max_element(counts.begin(), counts.end()) * kExperts) /
      static_cast<double>(slots);
}

}  // namespace
}  // namespace strata::cpu

int main(int argc, char** argv) {
  using namespace strata::cpu;
  for (const strata::DType dtype : {strata::DType::kF32, strata::DType::kBF16}) {
    for (const bool balanced : {true, false}) {
      for (const Named& named : kRoles) {
        benchmark::RegisterBenchmark(
            fmt::format("{}/{}/{}", name_of(dtype), balanced ? "balanced" : "imbalanced", named.name).c_str(),
            [&named, balanced, dtype](benchmark::State& state) { measure(state, named, balanced, dtype); })
            ->UseManualTime()
            ->Iterations(15)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
