// GEMMs against sums in fp64.
#include <fmt/core.h>

#include "kernels/kernel_test.h"

namespace strata::gpu_tests {
namespace {

using gpu::GemmLayout;

struct Problem {
  GemmLayout layout;
  DType dtype, out;
  int64_t m, n, k;
  int64_t pad = 0;  // elements between rows
  bool bias = false, accumulate = false;
  int multiprocessors = 4;
};

class GpuGemm : public KernelTest {
 protected:
  std::vector<double> run(const Problem& p, bool check) {
    restart();
    const bool nt = p.layout == GemmLayout::kNT, tn = p.layout == GemmLayout::kTN;
    const int64_t a_rows = tn ? p.k : p.m, a_stride = (tn ? p.m : p.k) + p.pad, b_rows = nt ? p.n : p.k,
                  b_stride = (nt ? p.k : p.n) + p.pad;
    const auto values = [&](int64_t rows, int64_t stride, uint32_t seed) {
      return rounded_to(p.dtype, random_values(static_cast<size_t>(rows * stride), seed));
    };
    const std::vector<double> a = values(a_rows, a_stride, 1), b = values(b_rows, b_stride, 2),
                              bias = rounded_to(DType::kF32, random_values(static_cast<size_t>(p.n), 3)),
                              old = rounded_to(p.out, random_values(static_cast<size_t>(p.m * p.n), 4));
    void* const c = p.accumulate ? upload(p.out, old, "c") : output(p.out, p.m * p.n, "c");
    const gpu::GemmPlan plan = gpu::plan_gemm({.layout = p.layout,
                                               .dtype = p.dtype,
                                               .out_dtype = p.out,
                                               .m = p.m,
                                               .n = p.n,
                                               .k = p.k,
                                               .a_stride = a_stride,
                                               .b_stride = b_stride,
                                               .c_stride = p.n},
                                              {.multiprocessors = p.multiprocessors});
    gpu::GemmArgs args{.a = upload(p.dtype, a, "a"),
                       .b = upload(p.dtype, b, "b"),
                       .c = c,
                       .bias = p.bias ? static_cast<float*>(upload(DType::kF32, bias, "bias")) : nullptr,
                       .a_stride = a_stride,
                       .b_stride = b_stride,
                       .c_stride = p.n,
                       .m = static_cast<int32_t>(p.m),
                       .n = static_cast<int32_t>(p.n),
                       .k = static_cast<int32_t>(p.k),
                       .accumulate = p.accumulate,
                       .splits = plan.splits,
                       .split_depth = plan.split_depth};
    if (plan.splits > 1) {
      const gpu::GemmSumArgs sum{.parts = output_of<float>(plan.parts_bytes / 4, "parts"),
                                 .c = c,
                                 .bias = args.bias,
                                 .c_stride = p.n,
                                 .m = args.m,
                                 .n = args.n,
                                 .splits = plan.splits,
                                 .accumulate = p.accumulate};
      args.c = const_cast<float*>(sum.parts);
      args.bias = nullptr;
      args.accumulate = 0;
      launch(plan.product, args);
      launch(plan.sum, sum);
    } else {
      launch(plan.product, args);
    }
    std::vector<double> result = download(p.out, c, p.m * p.n);
    if (check) {
      std::vector<double> expected;
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t j = 0; j < p.n; ++j) {
          double sum = p.bias ? bias[static_cast<size_t>(j)] : 0;
          for (int64_t k = 0; k < p.k; ++k)
            sum += a[static_cast<size_t>(tn ? k * a_stride + i : i * a_stride + k)] *
                   b[static_cast<size_t>(nt ? j * b_stride + k : k * b_stride + j)];
          expected.push_back(sum + (p.accumulate ? old[static_cast<size_t>(i * p.n + j)] : 0));
        }
      }
      expect_near(result, expected, p.out == DType::kBF16 ? 4.1e-3 : 2e-6,
                  std::sqrt(static_cast<double>(p.k)),
                  fmt::format("{} {}x{}x{}", plan.product.kernel, p.m, p.n, p.k));
    }
    return result;
  }
};

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;

TEST_P(GpuGemm, Layouts) {
  for (const GemmLayout layout : {GemmLayout::kNT, GemmLayout::kNN, GemmLayout::kTN}) {
    // One tile and more in each dimension, with ragged edges along every axis.
    run({.layout = layout, .dtype = kBF16, .out = kBF16, .m = 136, .n = 264, .k = 200}, true);
    run({.layout = layout,
         .dtype = kBF16,
         .out = kF32,
         .m = 40,
         .n = 72,
         .k = 72,
         .pad = 8,
         .bias = true,
         .accumulate = true},
        true);
    run({.layout = layout, .dtype = kBF16, .out = kF32, .m = 136, .n = 520, .k = 64, .multiprocessors = 1},
        true);
    run({.layout = layout, .dtype = kF32, .out = kF32, .m = 135, .n = 133, .k = 37, .bias = true}, true);
    run({.layout = layout, .dtype = kF32, .out = kF32, .m = 20, .n = 36, .k = 64, .accumulate = true}, true);
  }
}

TEST_P(GpuGemm, UnalignedRows) {
  for (const GemmLayout layout : {GemmLayout::kNT, GemmLayout::kNN, GemmLayout::kTN}) {
    run({.layout = layout, .dtype = kBF16, .out = kBF16, .m = 33, .n = 35, .k = 67, .bias = true}, true);
    run({.layout = layout, .dtype = kBF16, .out = kF32, .m = 3, .n = 5, .k = 7, .accumulate = true}, true);
  }
}

TEST_P(GpuGemm, CutDepth) {
  for (const DType out : {kF32, kBF16}) {
    const Problem problem{.layout = GemmLayout::kTN,
                          .dtype = kBF16,
                          .out = out,
                          .m = 24,
                          .n = 40,
                          .k = 1080,
                          .bias = true,
                          .accumulate = true};
    const std::vector<double> once = run(problem, true);
    EXPECT_EQ(once, run(problem, false));
  }
}

// For kernels that the executor cannot run, checks at least their launches.
TEST(GpuPlans, LaunchesOfWarpgroupsFitTheDevice) {
  constexpr uint32_t kSharedOfBlock = 227 * 1024;
  for (const GemmLayout layout : {GemmLayout::kNT, GemmLayout::kNN, GemmLayout::kTN}) {
    const gpu::GemmPlan plan = gpu::plan_gemm(
        {.layout = layout, .m = 72, .n = 328, .k = 8200, .a_stride = 8200, .b_stride = 8200, .c_stride = 328},
        {.multiprocessors = 132, .wgmma = true});
    EXPECT_TRUE(plan.maps);
    EXPECT_EQ(plan.splits, 8);
    EXPECT_EQ(plan.product.grid_x % 2, 0u) << "clusters of two";
    EXPECT_LE(plan.product.shared_bytes, kSharedOfBlock);
  }
  for (const int64_t dim : {64, 128}) {
    const auto plan =
        gpu::plan_attention_maps({.length = 100, .kv_length = 100, .head_dim = dim, .value_dim = dim}, {});
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->forward.shared_bytes, kSharedOfBlock);
    for (const gpu::KernelLaunch& one : plan->backward) EXPECT_LE(one.shared_bytes + 1024, kSharedOfBlock);
  }
  EXPECT_FALSE(gpu::plan_attention_maps({.head_dim = 96, .value_dim = 96}, {}));
}

STRATA_GPU_TESTS(GpuGemm, "sm_80");

}  // namespace
}  // namespace strata::gpu_tests
