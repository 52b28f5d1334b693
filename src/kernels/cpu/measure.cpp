#include "kernels/cpu/measure.h"

#include <fmt/format.h>
#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/version.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/triad.h"
#include "kernels/cpu/with_threads.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using hardware::DeviceSpec;

constexpr int64_t kTriadGrain = 1 << 16;

// Least seconds of `run`, repeated until the budget is used (at least twice; the first run is a warm-up).
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
  // Small values of both signs, because the speed of some processors depends on the data.
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

// Weight in the packed layout for one role of the engine.
Arena encoded_weight(GemmRole role, int64_t n, int64_t k, DType dtype, const DeviceSpec& device,
                     GemmEngine engine) {
  Arena master = filled(n * k, DType::kF32);
  const WeightEncoding encoding = plan_weight_encoding(role, n, k, dtype, device, engine);
  if (encoding.plain) return master;
  Arena packed(encoding.bytes);
  WeightPacker(encoding).pack(packed.data(), reinterpret_cast<const float*>(master.data()));
  return packed;
}

struct GemmProbe {
  Gemm gemm;
  Arena a, b, c, scratch;

  GemmProbe(const GemmSpec& spec, const DeviceSpec& device, GemmEngine engine)
      : gemm(plan_gemm(spec, device, engine)) {
    const bool weight_grad = spec.role == GemmRole::kWeightGrad;
    const bool forward = spec.role == GemmRole::kForward;
    a = filled(spec.m * (forward ? spec.k : spec.n), spec.dtype);
    b = weight_grad ? filled(spec.m * spec.k, spec.dtype)
                    : encoded_weight(spec.role, spec.n, spec.k, spec.dtype, device, engine);
    c = Arena((weight_grad ? spec.n * spec.k : spec.m * (forward ? spec.n : spec.k)) * size_of(DType::kF32));
    scratch = Arena(std::max<int64_t>(gemm.plan().scratch_bytes, kBufferAlignment));
  }
  void run() { gemm.run({.a = a.data(), .b = b.data(), .c = c.data(), .scratch = scratch.data()}); }
};

std::function<void()> gemm_run(const GemmSpec& spec, const DeviceSpec& device, GemmEngine engine) {
  auto probe = std::make_shared<GemmProbe>(spec, device, engine);
  return [probe] { probe->run(); };
}

// Best rate over a few shapes and both engines; the yardstick for all other kernels.
double gemm_peak(DType dtype, const DeviceSpec& device, double budget) {
  struct Size {
    int64_t m, n, k;
  };
  constexpr Size kSizes[] = {{1024, 1024, 1024}, {1024, 1536, 512}, {768, 768, 2304}};
  constexpr int kTries = 6;  // three sizes, two engines
  double best = 0.0;
  for (const Size& size : kSizes) {
    const GemmSpec spec{.role = GemmRole::kForward, .m = size.m, .n = size.n, .k = size.k, .dtype = dtype};
    for (const GemmEngine engine : {GemmEngine::kPanels, GemmEngine::kOneDnn}) {
      // Not every processor has bf16 in oneDNN; kAuto knows which.
      const GemmEngine usable =
          engine == GemmEngine::kOneDnn && dtype == DType::kBF16 ? GemmEngine::kAuto : engine;
      best = std::max(best,
                      gemm_cost(spec).flops / best_seconds(budget / kTries, gemm_run(spec, device, usable)));
    }
  }
  return best;
}

// Bytes per second of a triad over three arrays of `bytes` in total.
double triad_rate(int64_t bytes, double budget) {
  const auto triad = triad_loop(bytes);
  return static_cast<double>(bytes) / best_seconds(budget, [&] { triad(); });
}

// Largest part of a cache of `bytes` that still serves most of a triad over it, but at least a quarter; from
// the rates of triads inside the cache and far beyond it.
int64_t kept_of(int64_t bytes, double inside, double beyond, double budget) {
  constexpr int kParts = 3;
  for (int quarters = 4; quarters > 1; --quarters) {
    const double rate = triad_rate(bytes * quarters / 4, budget / kParts);
    // Seconds per byte are the cache's for the share that it serves and memory's for the rest.
    const double served = (1 / beyond - 1 / rate) / (1 / beyond - 1 / inside);
    if (served > 0.7) return bytes * quarters / 4;
  }
  return bytes / 4;
}

// Highway and oneDNN select instruction sets by the processor; if STRATA_MAX_CPU_ISA limits plans, they must
// be limited too. Both keep their selection for the process, and every plan describes the device first.
bool limit_libraries(const hardware::IsaFlags& isa) {
#if HWY_ARCH_X86
  if (std::getenv(hardware::kIsaLimitVariable) == nullptr) return false;
  int64_t left_out = 0;
  if (!isa.avx512) left_out |= HWY_AVX3 | HWY_AVX3_DL;
  if (!isa.avx2) left_out |= HWY_AVX2;
  // Not DisableTargets(): after it, SupportedTargets() could still select an excluded target.
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~left_out);
  using dnnl::cpu_isa;
  const cpu_isa most = isa.amx           ? cpu_isa::all
                       : isa.avx512_bf16 ? cpu_isa::avx512_core_bf16
                       : isa.avx512      ? cpu_isa::avx512_core
                       : isa.avx2        ? cpu_isa::avx2
                                         : cpu_isa::sse41;
  dnnl::set_max_cpu_isa(most);
  return true;
#else
  return false;
#endif
}

}  // namespace

PeakGemm peak_gemm(DType dtype) {
  const GemmEngine engine = dtype == DType::kBF16 ? GemmEngine::kAuto : GemmEngine::kOneDnn;
  const DeviceSpec device = describe_device(compute_threads());
  PeakGemm best;
  double best_rate = 0.0;
  for (const GemmSpec& shape :
       {GemmSpec{.m = 1024, .n = 1024, .k = 1024}, GemmSpec{.m = 2048, .n = 2048, .k = 512},
        GemmSpec{.m = 2048, .n = 768, .k = 3072}, GemmSpec{.m = 4096, .n = 512, .k = 1536}}) {
    GemmSpec spec = shape;
    spec.dtype = spec.out_dtype = dtype;
    PeakGemm probe{gemm_cost(spec).flops, gemm_run(spec, device, engine)};
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
  [[maybe_unused]] static const bool limited = limit_libraries(spec.isa);
  // Kernels dispatch on Highway's targets: a virtual processor may report flags that it does not let them
  // use.
  const int64_t targets = hwy::SupportedTargets();
  if ((targets & HWY_AVX3) == 0) spec.isa.avx512 = spec.isa.avx512_bf16 = spec.isa.amx = false;
  if ((targets & (HWY_AVX3 | HWY_AVX2)) == 0) spec.isa.avx2 = false;
  // ONEDNN_MAX_CPU_ISA may keep the library from using instruction sets. bf16 dot products are still used if
  // they are fast; only the library uses AMX tiles.
  spec.library_bf16 = detail::onednn_has_native_bf16();
  if (!spec.library_bf16 && !detail::multiplies_pairs_fast(spec.isa))
    spec.isa.avx512_bf16 = spec.isa.amx = false;
  const dnnl_version_t* version = dnnl::version();
  spec.library = fmt::format("strata {}, oneDNN {}.{}.{}", program_version(), version->major, version->minor,
                             version->patch);
  return spec;
}

hardware::IsaFlags compiled_instruction_sets() {
  constexpr int64_t kTargets = HWY_TARGETS;
  return {.avx2 = (kTargets & HWY_AVX2) != 0,
          .avx512 = (kTargets & HWY_AVX3) != 0,
          .avx512_bf16 = STRATA_HAS_BF16_NATIVE != 0,
          .amx = STRATA_HAS_AMX != 0,
          .neon = (kTargets & HWY_NEON) != 0};
}

std::function<double()> triad_loop(int64_t bytes) {
  const int64_t n = bytes / 3 / size_of(DType::kF32);
  struct Arrays {
    Arena a, b, c;
  };
  const int64_t each = n * size_of(DType::kF32) + kBufferAlignment;
  const auto arrays = std::make_shared<Arrays>(Arrays{Arena(each), Arena(each), Arena(each)});
  return [arrays, n] {
    const auto floats = [](const Arena& arena) { return reinterpret_cast<float*>(arena.data()); };
    const double begin = monotonic_seconds();
    parallel_ranges(n, kTriadGrain, [&](int64_t first, int64_t last) {
      detail::triad(floats(arrays->a) + first, floats(arrays->b) + first, floats(arrays->c) + first, 0.5f,
                    last - first);
    });
    return monotonic_seconds() - begin;
  };
}

std::function<double()> reading_loop(int64_t bytes) {
  const int64_t n = bytes / size_of(DType::kF32);
  auto memory = std::make_shared<Arena>(n * size_of(DType::kF32) + kBufferAlignment);
  auto* const floats = reinterpret_cast<float*>(memory->data());
  // Pages that were never written may all map to the same zero page.
  parallel_ranges(n, kTriadGrain,
                  [&](int64_t begin, int64_t end) { std::fill(floats + begin, floats + end, 1.0f); });
  return [memory, floats, n] {
    std::atomic<int64_t> wrong{0};  // keeps the compiler from removing the sums
    const double begin = monotonic_seconds();
    parallel_ranges(n, kTriadGrain, [&](int64_t first, int64_t last) {
      if (detail::sum_of(floats + first, last - first) < 1.0f) ++wrong;
    });
    const double seconds = monotonic_seconds() - begin;
    STRATA_CHECK(wrong == 0, "[measure] a sum of ones is below 1");
    return seconds;
  };
}

DeviceSpec measure_device(int threads, double seconds) {
  const detail::WithThreads scope(threads);
  DeviceSpec spec = describe_device(threads);
  // A quarter for each of the two peaks, a sixth for each bandwidth and for the share that the cache serves.
  spec.gemm_flops[hardware::Precision::kFp32] = gemm_peak(DType::kF32, spec, seconds / 4);
  spec.gemm_flops[hardware::Precision::kBf16] = gemm_peak(DType::kBF16, spec, seconds / 4);
  const int64_t cache =
      std::max<int64_t>(spec.l3_bytes > 0 ? spec.l3_bytes : spec.l2_bytes * threads, 1 << 20);
  const int64_t beyond = std::min(std::max<int64_t>(4 * cache, int64_t{96} << 20), spec.memory_bytes / 4);
  spec.memory_bytes_per_s = triad_rate(beyond, seconds / 6);
  spec.cache_bytes_per_s = triad_rate(cache / 4, seconds / 6);
  spec.kept_bytes = kept_of(cache, spec.cache_bytes_per_s, spec.memory_bytes_per_s, seconds / 6);
  spec.source = "measured";
  spec.date = utc_timestamp();
  return spec;
}

}  // namespace strata::cpu
