// The three GEMMs of a linear layer at the shapes of two models. In fp32: the in-house GEMM, oneDNN's matmul
// with the layouts that it prefers, oneDNN's sgemm on plain operands, and that of another oneDNN if
// STRATA_BENCH_DNNL names its library (a newer one from a wheel: libdnnl.so.3). In bf16: the in-house GEMM
// with bf16 dot products and oneDNN's matmul, each if the processor supports it. All cases are timed several
// times in turn before any is reported, and the least time is used. Counters: GFLOP/s and `of_best`, the
// fraction of the best case of this process; `cpu_of_best` is the same by processor time, for shared
// machines.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <dnnl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/measure.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

constexpr int kRounds = 4;

struct Shape3 {
  int64_t m, n, k;
};
// qkv, output, gate_up, down and head of d=512 / ffn 1536 / vocab 8192, then of d=768 / ffn 3072 / vocab
// 50257; the second head has the tokens of one chunk.
constexpr Shape3 kShapes[] = {{4096, 1536, 512}, {4096, 512, 512},  {4096, 3072, 512}, {4096, 512, 1536},
                              {4096, 8192, 512}, {2048, 2304, 768}, {2048, 768, 768},  {2048, 3072, 768},
                              {2048, 768, 3072}, {512, 50257, 768}};
constexpr const char* kRoleNames[] = {"forward", "input_grad", "weight_grad"};
enum class Variant { kPanels, kOneDnn, kSgemm, kOtherSgemm, kPairs, kOneDnnBf16 };
constexpr const char* kVariantNames[] = {"panels", "onednn_matmul",     "onednn_sgemm", "other_onednn_sgemm",
                                         "pairs",  "onednn_matmul_bf16"};
DType dtype_of(Variant variant) {
  return variant == Variant::kPairs || variant == Variant::kOneDnnBf16 ? DType::kBF16 : DType::kF32;
}
GemmEngine engine_of(Variant variant) {
  switch (variant) {
    case Variant::kPanels:
      return GemmEngine::kPanels;
    case Variant::kPairs:
      return GemmEngine::kPairs;
    default:
      return GemmEngine::kOneDnn;
  }
}
using Sgemm = decltype(&dnnl_sgemm);  // the same in versions 2 and 3

struct Case {
  Shape3 shape;
  GemmRole role;
  Variant variant;
  double wall = std::numeric_limits<double>::infinity();
  double cpu = std::numeric_limits<double>::infinity();
  double flops() const { return 2.0 * static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k); }
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

float* floats(const Arena& arena) {
  return reinterpret_cast<float*>(arena.data());
}

Arena filled(int64_t n) {
  Arena arena(n * 4);
  for (int64_t i = 0; i < n; ++i) floats(arena)[i] = static_cast<float>(i % 1021) / 512.0f - 1.0f;
  return arena;
}

// The operands of one shape, shared by its cases.
struct Operands {
  Shape3 s;
  Arena x, w, y, dw, packed, scratch;
  explicit Operands(Shape3 shape)
      : s(shape), x(filled(s.m * s.k)), w(filled(s.n * s.k)), y(filled(s.m * s.n)), dw(s.n * s.k * 4) {}
};

// sgemm of the library that the environment names; null if it names none.
Sgemm other_sgemm() {
  const char* const path = std::getenv("STRATA_BENCH_DNNL");
  if (path == nullptr) return nullptr;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  void* const found = library == nullptr ? nullptr : dlsym(library, "dnnl_sgemm");
  if (found == nullptr) {
    fmt::print(stderr, "STRATA_BENCH_DNNL: {}\n", dlerror());
    std::exit(2);
  }
  return reinterpret_cast<Sgemm>(found);
}

void run_sgemm(const Operands& o, GemmRole role, Sgemm sgemm) {
  const Shape3 s = o.s;
  const float *x = floats(o.x), *w = floats(o.w), *y = floats(o.y);
  switch (role) {
    case GemmRole::kForward:
      sgemm('N', 'T', s.m, s.n, s.k, 1.0f, x, s.k, w, s.k, 0.0f, floats(o.y), s.n);
      break;
    case GemmRole::kInputGrad:
      sgemm('N', 'N', s.m, s.k, s.n, 1.0f, y, s.n, w, s.k, 0.0f, floats(o.x), s.k);
      break;
    case GemmRole::kWeightGrad:
      sgemm('T', 'N', s.n, s.k, s.m, 1.0f, y, s.n, x, s.k, 0.0f, floats(o.dw), s.k);
      break;
  }
}

void time_case(Case& c, Operands& o, Sgemm other) {
  const GemmEngine engine = engine_of(c.variant);
  const DType dtype = dtype_of(c.variant);
  const hardware::DeviceSpec device = describe_device(compute_threads());
  Gemm gemm(plan_gemm({.role = c.role,
                       .m = o.s.m,
                       .n = o.s.n,
                       .k = o.s.k,
                       .dtype = dtype,
                       .out_dtype = c.role == GemmRole::kWeightGrad ? DType::kF32 : dtype},
                      device, engine));
  const int64_t scratch_bytes = gemm.plan().scratch_bytes;
  if (o.scratch.size() < scratch_bytes) o.scratch = Arena(scratch_bytes);
  const void* weight = o.w.data();
  if (c.role != GemmRole::kWeightGrad) {
    const WeightEncoding encoding = plan_weight_encoding(c.role, o.s.n, o.s.k, dtype, device, engine);
    if (!encoding.plain) {
      if (o.packed.size() < encoding.bytes) o.packed = Arena(encoding.bytes);
      WeightPacker(encoding).pack(o.packed.data(), floats(o.w));
      weight = o.packed.data();
    }
  }
  GemmArgs args{.a = o.y.data(), .b = weight, .c = o.x.data(), .scratch = o.scratch.data()};
  if (c.role == GemmRole::kForward) {
    args.a = o.x.data();
    args.c = o.y.data();
  } else if (c.role == GemmRole::kWeightGrad) {
    args.b = o.x.data();
    args.c = o.dw.data();
  }
  const double wall = monotonic_seconds();
  const double cpu = processor_seconds();
  if (c.variant == Variant::kSgemm || c.variant == Variant::kOtherSgemm) {
    run_sgemm(o, c.role, c.variant == Variant::kSgemm ? &dnnl_sgemm : other);
  } else {
    gemm.run(args);
  }
  c.wall = std::min(c.wall, monotonic_seconds() - wall);
  c.cpu = std::min(c.cpu, processor_seconds() - cpu);
}

std::vector<Case> timed_cases() {
  std::vector<Case> cases;
  const Sgemm other = other_sgemm();
  std::vector<Variant> variants{Variant::kPanels, Variant::kOneDnn, Variant::kSgemm};
  if (other != nullptr) variants.push_back(Variant::kOtherSgemm);
  if (detail::has_bf16_pairs()) variants.push_back(Variant::kPairs);
  if (describe_device(compute_threads()).library_bf16) variants.push_back(Variant::kOneDnnBf16);
  for (const Shape3& shape : kShapes) {
    Operands operands(shape);
    const size_t first = cases.size();
    for (const GemmRole role : {GemmRole::kForward, GemmRole::kInputGrad, GemmRole::kWeightGrad}) {
      for (const Variant variant : variants) {
        cases.push_back({shape, role, variant});
      }
    }
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = first; i < cases.size(); ++i) time_case(cases[i], operands, other);
    }
  }
  return cases;
}

void report(benchmark::State& state, const Case& c, double best_wall, double best_cpu) {
  for (auto _ : state) state.SetIterationTime(c.wall);
  state.counters["GFLOP/s"] = c.flops() / c.wall * 1e-9;
  state.counters["of_best"] = c.flops() / c.wall / best_wall;
  state.counters["cpu_of_best"] = c.flops() / c.cpu / best_cpu;
}

}  // namespace
}  // namespace strata::cpu

int main(int argc, char** argv) {
  using namespace strata::cpu;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const std::vector<Case> cases = timed_cases();
  double best_wall = 0.0;
  double best_cpu = 0.0;
  for (const Case& c : cases) {
    best_wall = std::max(best_wall, c.flops() / c.wall);
    best_cpu = std::max(best_cpu, c.flops() / c.cpu);
  }
  for (const Case& c : cases) {
    const std::string name = fmt::format("{}/{}x{}x{}/{}", kRoleNames[static_cast<int>(c.role)], c.shape.m,
                                         c.shape.n, c.shape.k, kVariantNames[static_cast<int>(c.variant)]);
    benchmark::RegisterBenchmark(
        name.c_str(),
        [&c, best_wall, best_cpu](benchmark::State& state) { report(state, c, best_wall, best_cpu); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
