// GEMMs of linear layers of 8,192 tokens in their three roles, with each tile; checks sampled elements
// against sums.
#include <cmath>

#include "bench.h"

namespace strata::gpu_bench {
namespace {

using gpu::GemmLayout;

struct Problem {
  int64_t m, n, k;  // of c[m][n]
};

std::string name_of(GemmLayout layout) {
  return layout == GemmLayout::kNT ? "gemm_nt" : layout == GemmLayout::kNN ? "gemm_nn" : "gemm_tn";
}

// `wgmma`: kernels with warpgroup MMA, if the device has it; else those of all devices.
void run(Bench& bench, GemmLayout layout, DType dtype, DType out, Problem p, bool wgmma,
         bool accumulate = false) {
  Driver& driver = bench.driver();
  const bool nt = layout == GemmLayout::kNT, tn = layout == GemmLayout::kTN;
  const int64_t a_stride = tn ? p.m : p.k, b_stride = nt ? p.k : p.n;
  const RandomArray a = bench.random(dtype, p.m * p.k), b = bench.random(dtype, p.n * p.k);
  void* const c = bench.output(out, p.m * p.n);
  const std::string op = name_of(layout) + (dtype == DType::kF32 ? "_f32" : "") + (accumulate ? "_add" : ""),
                    shape = std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
  const gpu::GemmPlan plan = gpu::plan_gemm(
      {.layout = layout,
       .dtype = dtype,
       .out_dtype = out,
       .m = p.m,
       .n = p.n,
       .k = p.k,
       .a_stride = a_stride,
       .b_stride = b_stride,
       .c_stride = p.n},
      {.multiprocessors = driver.traits().multiprocessors, .wgmma = wgmma && driver.traits().wgmma});
  void* const parts = plan.splits > 1 ? driver.allocate(plan.parts_bytes) : nullptr;
  const gpu::TensorMap a_map = plan.maps ? driver.tensor_map(plan.a_map, a.at) : gpu::TensorMap{},
                       b_map = plan.maps ? driver.tensor_map(plan.b_map, b.at) : gpu::TensorMap{};
  const auto product = [&](bool add) {
    const gpu::GemmArgs args{.a = a.at,
                             .b = b.at,
                             .c = plan.splits > 1 ? parts : c,
                             .bias = nullptr,
                             .a_stride = a_stride,
                             .b_stride = b_stride,
                             .c_stride = p.n,
                             .m = static_cast<int32_t>(p.m),
                             .n = static_cast<int32_t>(p.n),
                             .k = static_cast<int32_t>(p.k),
                             .accumulate = add && plan.splits == 1,
                             .splits = plan.splits,
                             .split_depth = plan.split_depth};
    if (plan.maps) {
      driver.launch(plan.product, gpu::GemmMapsArgs{.a = a_map, .b = b_map, .gemm = args});
    } else {
      driver.launch(plan.product, args);
    }
    if (plan.splits > 1) {
      const gpu::GemmSumArgs sum{.parts = static_cast<float*>(parts),
                                 .c = c,
                                 .bias = nullptr,
                                 .c_stride = p.n,
                                 .m = args.m,
                                 .n = args.n,
                                 .splits = plan.splits,
                                 .accumulate = add};
      driver.launch(plan.sum, sum);
    }
  };
  const auto work = [&] {
    product(false);
    if (accumulate) product(true);
  };
  work();
  Check check(out == DType::kBF16 ? 5e-3 : 1e-4);
  for (int64_t sample = 0; sample < 150; ++sample) {
    // The corners are the first samples.
    const int64_t i = sample == 0   ? 0
                      : sample == 1 ? p.m - 1
                                    : random_bits(static_cast<uint64_t>(sample), 77) % p.m;
    const int64_t j = sample == 0   ? 0
                      : sample == 1 ? p.n - 1
                                    : random_bits(static_cast<uint64_t>(sample), 78) % p.n;
    double sum = 0;
    for (int64_t k = 0; k < p.k; ++k)
      sum += a[tn ? k * a_stride + i : i * a_stride + k] * b[nt ? j * b_stride + k : k * b_stride + j];
    check.value(bench.read(out, c, i * p.n + j), accumulate ? 2 * sum : sum,
                std::sqrt(static_cast<double>(p.k)) / 3);
  }
  const std::string note =
      plan.product.kernel + (plan.splits > 1 ? " in " + std::to_string(plan.splits) : "");
  bench.verify(op + " " + note, shape, check, {{out, c, p.m * p.n}}, work);
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  bench.report(op, shape, note, flops, 0, [&] { product(accumulate); });
  driver.free_all();
}

}  // namespace

void bench_gemm(Bench& bench, bool wgmma) {
  run(bench, GemmLayout::kNT, DType::kBF16, DType::kBF16, {8192, 8192, 8192}, wgmma);
  // Tokens, outputs, inputs.
  const Problem layers[] = {{8192, 4096, 4096}, {8192, 14336, 4096}, {8192, 4096, 14336},
                            {8192, 2048, 2048}, {8192, 8192, 2048},  {8192, 1024, 1024},
                            {8192, 3072, 1024}, {8192, 32768, 2048}};
  for (const Problem& l : layers) {
    run(bench, GemmLayout::kNT, DType::kBF16, DType::kBF16, {l.m, l.n, l.k}, wgmma);
    run(bench, GemmLayout::kNN, DType::kBF16, DType::kBF16, {l.m, l.k, l.n}, wgmma);
    run(bench, GemmLayout::kTN, DType::kBF16, DType::kF32, {l.n, l.k, l.m}, wgmma);
  }
  run(bench, GemmLayout::kTN, DType::kBF16, DType::kF32, {4096, 4096, 8192}, wgmma, true);
  // Irregular shapes: only correctness matters.
  run(bench, GemmLayout::kNT, DType::kBF16, DType::kBF16, {1000, 1000, 520}, wgmma);
  run(bench, GemmLayout::kNN, DType::kBF16, DType::kF32, {72, 328, 8200}, wgmma);
  run(bench, GemmLayout::kTN, DType::kBF16, DType::kF32, {1000, 1000, 520}, wgmma, true);
  if (wgmma) return;
  run(bench, GemmLayout::kNT, DType::kBF16, DType::kBF16, {1000, 1003, 517}, false);
  run(bench, GemmLayout::kTN, DType::kBF16, DType::kF32, {1000, 1003, 517}, false);
  for (const GemmLayout layout : {GemmLayout::kNT, GemmLayout::kNN, GemmLayout::kTN})
    run(bench, layout, DType::kF32, DType::kF32, {2048, 2048, 2048}, false);
}

}  // namespace strata::gpu_bench
