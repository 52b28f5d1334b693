#include "kernels/cpu/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/version.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/triad.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using hardware::DeviceSpec;

constexpr int64_t kTriadGrain = 1 << 16;
constexpr int64_t kProbeTokens = 1024;
constexpr int64_t kProbeOutputs = 1536;
constexpr int64_t kProbeInputs = 512;
constexpr int64_t kProbeVocab = 8192;

// The least seconds of `run`, repeated (at least twice, the first is warm-up) until the budget is used.
double best_seconds(double budget, const std::function<void()>& run) {
  const double start = monotonic_seconds();
  double best = 1e30;
  for (int i = 0; i < 2 || monotonic_seconds() - start < budget; ++i) {
    const double before = monotonic_seconds();
    run();
    best = std::min(best, monotonic_seconds() - before);
  }
  return std::max(best, 1e-9);
}

Arena filled(int64_t elements, DType dtype) {
  Arena arena(std::max<int64_t>(elements * size_of(dtype), kBufferAlignment));
  // Small values of both signs: the speed of some processors depends on the data.
  for (int64_t i = 0; i < elements; ++i) {
    const float value = static_cast<float>(i * 2654435761 % 1021) / 512.0f - 1.0f;
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(arena.data())[i] = value;
    } else {
      reinterpret_cast<BF16*>(arena.data())[i] = BF16(value);
    }
  }
  return arena;
}

// The weight as one role of the engine wants it.
Arena encoded_weight(GemmRole role, int64_t n, int64_t k, DType dtype, GemmEngine engine) {
  Arena master = filled(n * k, DType::kF32);
  const WeightEncoding encoding = plan_weight_encoding(role, n, k, dtype, engine);
  if (encoding.plain) return master;
  Arena packed(encoding.bytes);
  pack_weight(encoding, packed.data(), reinterpret_cast<const float*>(master.data()));
  return packed;
}

struct GemmProbe {
  GemmPlan plan;
  Arena a, b, c, scratch;

  GemmProbe(const GemmSpec& spec, GemmEngine engine) : plan(plan_gemm(spec, engine)) {
    const bool weight_grad = spec.role == GemmRole::kWeightGrad;
    const bool forward = spec.role == GemmRole::kForward;
    a = filled(spec.m * (forward ? spec.k : spec.n), spec.dtype);
    b = weight_grad ? filled(spec.m * spec.k, spec.dtype)
                    : encoded_weight(spec.role, spec.n, spec.k, spec.dtype, engine);
    c = Arena((weight_grad ? spec.n * spec.k : spec.m * (forward ? spec.n : spec.k)) * size_of(DType::kF32));
    scratch = Arena(std::max<int64_t>(plan.scratch_bytes, kBufferAlignment));
  }
  void run() const {
    run_gemm(plan, {.a = a.data(), .b = b.data(), .c = c.data(), .scratch = scratch.data()});
  }
};

std::function<void()> gemm_run(const GemmSpec& spec, GemmEngine engine) {
  auto probe = std::make_shared<GemmProbe>(spec, engine);
  return [probe] { probe->run(); };
}

// The best of a few shapes and of both engines: the yardstick of every other kernel.
double gemm_peak(DType dtype, double budget) {
  struct Size {
    int64_t m, n, k;
  };
  constexpr Size kSizes[] = {{1024, 1024, 1024}, {1024, 1536, 512}, {768, 768, 2304}};
  constexpr int kTries = 6;  // three sizes, two engines
  double best = 0.0;
  for (const Size& size : kSizes) {
    const GemmSpec spec{.role = GemmRole::kForward, .m = size.m, .n = size.n, .k = size.k, .dtype = dtype};
    for (const GemmEngine engine : {GemmEngine::kPanels, GemmEngine::kOneDnn}) {
      // oneDNN has no bf16 for every processor; kAuto knows.
      const GemmEngine usable =
          engine == GemmEngine::kOneDnn && dtype == DType::kBF16 ? GemmEngine::kAuto : engine;
      best = std::max(best, gemm_cost(spec).flops / best_seconds(budget / kTries, gemm_run(spec, usable)));
    }
  }
  return best;
}

// Bytes per second of a triad over three arrays of together `bytes`.
double triad_rate(int64_t bytes, double budget) {
  const int64_t n = std::max<int64_t>(bytes / 3 / size_of(DType::kF32), 1024);
  const Arena a(n * size_of(DType::kF32)), b(n * size_of(DType::kF32)), c(n * size_of(DType::kF32));
  const auto floats = [](const Arena& arena) { return reinterpret_cast<float*>(arena.data()); };
  const double seconds = best_seconds(budget, [&] {
    parallel_ranges(n, kTriadGrain, [&](int64_t begin, int64_t end) {
      detail::triad(floats(a) + begin, floats(b) + begin, floats(c) + begin, 0.5f, end - begin);
    });
  });
  return 3.0 * static_cast<double>(n * size_of(DType::kF32)) / seconds;
}

class ThreadsAsBefore {
 public:
  explicit ThreadsAsBefore(int threads) : before_(compute_threads()) { set_compute_threads(threads); }
  ~ThreadsAsBefore() { set_compute_threads(before_); }
  ThreadsAsBefore(const ThreadsAsBefore&) = delete;
  ThreadsAsBefore& operator=(const ThreadsAsBefore&) = delete;

 private:
  int before_;
};

FamilyProbe cross_entropy_probe(DType dtype) {
  struct Buffers {
    LinearCrossEntropyPlan plan;
    Arena x, w_forward, w_input_grad, dx, dw, scratch;
    std::vector<int32_t> targets;
    double loss = 0.0;
    int64_t count = 0;
  };
  const LinearCrossEntropySpec spec{
      .tokens = kProbeTokens, .width = kProbeInputs, .vocab = kProbeVocab, .dtype = dtype};
  auto buffers = std::make_shared<Buffers>();
  Buffers& s = *buffers;
  s.plan = plan_linear_cross_entropy(spec);
  s.x = filled(spec.tokens * spec.width, dtype);
  s.dx = filled(spec.tokens * spec.width, dtype);
  s.w_forward = encoded_weight(GemmRole::kForward, spec.vocab, spec.width, dtype, GemmEngine::kAuto);
  s.w_input_grad = encoded_weight(GemmRole::kInputGrad, spec.vocab, spec.width, dtype, GemmEngine::kAuto);
  s.dw = filled(spec.vocab * spec.width, DType::kF32);
  s.scratch = Arena(s.plan.scratch_bytes);
  for (int64_t i = 0; i < spec.tokens; ++i) s.targets.push_back(static_cast<int32_t>(i * 31 % spec.vocab));
  const GemmCost cost = linear_cross_entropy_cost(spec);
  return {"linear_cross_entropy", dtype, cost.flops, cost.bytes, [buffers] {
            Buffers& b = *buffers;
            run_linear_cross_entropy(b.plan, {.x = b.x.data(),
                                              .w_forward = b.w_forward.data(),
                                              .w_input_grad = b.w_input_grad.data(),
                                              .targets = b.targets.data(),
                                              .loss_sum = &b.loss,
                                              .count = &b.count,
                                              .dx = b.dx.data(),
                                              .dw = reinterpret_cast<float*>(b.dw.data()),
                                              .scratch = b.scratch.data()});
          }};
}

}  // namespace

std::vector<FamilyProbe> gemm_probes(DType dtype) {
  std::vector<FamilyProbe> probes;
  const std::pair<const char*, GemmRole> kRoles[] = {{"gemm_forward", GemmRole::kForward},
                                                     {"gemm_input_grad", GemmRole::kInputGrad},
                                                     {"gemm_weight_grad", GemmRole::kWeightGrad}};
  for (const auto& [family, role] : kRoles) {
    const GemmSpec spec{.role = role,
                        .m = kProbeTokens,
                        .n = kProbeOutputs,
                        .k = kProbeInputs,
                        .dtype = dtype,
                        .out_dtype = role == GemmRole::kWeightGrad ? DType::kF32 : dtype};
    const GemmCost cost = gemm_cost(spec);
    probes.push_back({family, dtype, cost.flops, cost.bytes, gemm_run(spec, GemmEngine::kAuto)});
  }
  probes.push_back(cross_entropy_probe(dtype));
  return probes;
}

FamilyProbe peak_gemm_probe(DType dtype) {
  const GemmEngine engine = dtype == DType::kBF16 ? GemmEngine::kAuto : GemmEngine::kOneDnn;
  FamilyProbe best;
  double best_rate = 0.0;
  for (const GemmSpec& shape :
       {GemmSpec{.m = 1024, .n = 1024, .k = 1024}, GemmSpec{.m = 2048, .n = 2048, .k = 512},
        GemmSpec{.m = 2048, .n = 768, .k = 3072}, GemmSpec{.m = 4096, .n = 512, .k = 1536}}) {
    GemmSpec spec = shape;
    spec.dtype = spec.out_dtype = dtype;
    FamilyProbe probe{"gemm_peak", dtype, gemm_cost(spec).flops, gemm_cost(spec).bytes,
                      gemm_run(spec, engine)};
    const double rate = probe.flops / best_seconds(0.05, probe.run);
    if (rate > best_rate) {
      best_rate = rate;
      best = std::move(probe);
    }
  }
  return best;
}

DeviceSpec describe_device(int threads) {
  DeviceSpec spec = hardware::detect_cpu(threads);
  const dnnl_version_t* version = dnnl::version();
  spec.library = fmt::format("strata {}, oneDNN {}.{}.{}", program_version(), version->major, version->minor,
                             version->patch);
  return spec;
}

DeviceSpec measure_device(int threads, double seconds, std::span<const FamilyProbe> probes) {
  const ThreadsAsBefore scope(threads);
  DeviceSpec spec = describe_device(threads);
  // A quarter each for the two peaks, an eighth each for the bandwidths, a quarter for the families.
  spec.gemm_flops_f32 = gemm_peak(DType::kF32, seconds / 4);
  spec.gemm_flops_bf16 = gemm_peak(DType::kBF16, seconds / 4);
  const int64_t cache =
      std::max<int64_t>(spec.l3_bytes > 0 ? spec.l3_bytes : spec.l2_bytes * threads, 1 << 20);
  const int64_t beyond = std::min(std::max<int64_t>(4 * cache, int64_t{96} << 20), spec.memory_bytes / 4);
  spec.memory_bytes_per_s = triad_rate(beyond, seconds / 8);
  spec.cache_bytes_per_s = triad_rate(cache / 4, seconds / 8);
  for (const FamilyProbe& probe : probes) {
    const double best = best_seconds(seconds / 4 / static_cast<double>(probes.size()), probe.run);
    const double peak = probe.dtype == DType::kBF16 ? spec.gemm_flops_bf16 : spec.gemm_flops_f32;
    hardware::FamilyRate rate{.family = probe.family, .dtype = std::string(name_of(probe.dtype))};
    // Only the side that binds is measured by this size; the other keeps the device's own rate.
    if (probe.flops / peak >= probe.bytes / spec.memory_bytes_per_s) {
      rate.flops_per_s = probe.flops / best;
    } else {
      rate.bytes_per_s = probe.bytes / best;
    }
    spec.rates.push_back(rate);
  }
  spec.source = "measured";
  spec.date = utc_timestamp();
  return spec;
}

DeviceSpec measured_device(FileSystem& files, int threads, double seconds,
                           const std::function<std::vector<FamilyProbe>()>& probes) {
  DeviceSpec spec = describe_device(threads);
  if (hardware::load_cached_device(spec) && spec.source == "measured") return spec;
  const std::vector<FamilyProbe> made = probes();
  spec = measure_device(threads, seconds, made);
  hardware::save_cached_device(files, spec);
  return spec;
}

}  // namespace strata::cpu
