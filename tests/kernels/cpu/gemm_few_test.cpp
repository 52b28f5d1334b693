// Skinny GEMMs: results are right, and a row does not depend on the other rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "fixtures/every_target.h"
#include "fixtures/host_device.h"
#include "kernels/cpu/gemm.h"
#include "tensor/arena.h"
#include "tensor/dtype.h"

namespace strata::cpu {
namespace {

constexpr int64_t kMost = 32;

std::vector<float> normal(int64_t n, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(n));
  fill_normal(values.data(), n, 1.0f, RandomKey{5, stream});
  return values;
}
std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = static_cast<float>(BF16(value));
  return values;
}

struct Case {
  int64_t n, k;
  DType out;
};
class SkinnyGemmBf16 : public testing::TestWithParam<Case> {};

TEST_P(SkinnyGemmBf16, EqualsTheNaiveMatmulForAnyNumberOfRows) {
  const auto& [n, k, out_dtype] = GetParam();
  const auto x = rounded(normal(kMost * k, 1)), master = normal(n * k, 2), w = rounded(master),
             bias = normal(n, 3);
  std::vector<BF16> x16(x.size());
  convert(x16.data(), DType::kBF16, x.data(), DType::kF32, kMost * k);
  const WeightEncoding encoding = plan_weight_rows(n, k);
  EXPECT_EQ(encoding.bytes, 2 * n * k);
  Arena packed(encoding.bytes + 64);
  WeightPacker(encoding).pack(packed.data(), master.data());
  std::vector<float> whole;
  for (int64_t m = kMost; m > 0; --m) {
    const GemmPlan plan = fixtures::plan_here({.m = m,
                                               .n = n,
                                               .k = k,
                                               .dtype = DType::kBF16,
                                               .out_dtype = out_dtype,
                                               .bias = true,
                                               .weight_rows = true});
    Arena scratch(plan.scratch_bytes + 64), c(m * n * 4 + 64);
    Gemm(plan).run(
        {.a = x16.data(), .b = packed.data(), .bias = bias.data(), .c = c.data(), .scratch = scratch.data()});
    std::vector<float> found(static_cast<size_t>(m * n));
    convert(found.data(), DType::kF32, c.data(), out_dtype, m * n);
    if (whole.empty()) {
      whole = found;
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = static_cast<double>(bias[static_cast<size_t>(i % n)]), size = 1;
        for (int64_t j = 0; j < k; ++j) {
          const double term = static_cast<double>(x[static_cast<size_t>(i / n * k + j)]) *
                              static_cast<double>(w[static_cast<size_t>(i % n * k + j)]);
          sum += term;
          size += std::abs(term);
        }
        const double tolerance = out_dtype == DType::kF32 ? 1e-6 * size : 0.005 * (std::abs(sum) + 0.1);
        ASSERT_NEAR(static_cast<double>(found[static_cast<size_t>(i)]), sum, tolerance) << i;
      }
    }
    EXPECT_EQ(std::memcmp(found.data(), whole.data(), found.size() * sizeof(float)), 0) << m << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SkinnyGemmBf16,
                         testing::Values(Case{1, 1, DType::kF32}, Case{33, 29, DType::kBF16},
                                         Case{70, 64, DType::kF32}, Case{515, 200, DType::kBF16},
                                         Case{7, 1600, DType::kF32}));

void expect_right_for_any_number_of_rows() {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{101, 77}, {64, 512}, {7, 1600}, {2, 31}, {1, 32}}) {
    const auto x = normal(kMost * k, 1), w = normal(n * k, 2), bias = normal(n, 3);
    std::vector<float> whole;
    for (int64_t m = kMost; m > 0; --m) {
      const GemmPlan plan = fixtures::plan_here({.m = m, .n = n, .k = k, .bias = true});
      ASSERT_EQ(plan.kernel, GemmKernel::kSkinny);
      Arena scratch(plan.scratch_bytes);
      std::fill_n(scratch.data(), plan.scratch_bytes, std::byte{0xff});
      std::vector<float> c(static_cast<size_t>(m * n), std::nanf(""));
      Gemm(plan).run(
          {.a = x.data(), .b = w.data(), .bias = bias.data(), .c = c.data(), .scratch = scratch.data()});
      if (whole.empty()) {
        whole = c;
        for (int64_t i = 0; i < m * n; ++i) {
          double sum = static_cast<double>(bias[static_cast<size_t>(i % n)]);
          for (int64_t j = 0; j < k; ++j)
            sum += static_cast<double>(x[static_cast<size_t>(i / n * k + j)]) *
                   static_cast<double>(w[static_cast<size_t>(i % n * k + j)]);
          ASSERT_NEAR(static_cast<double>(c[static_cast<size_t>(i)]), sum, 1e-4) << i;
        }
      }
      EXPECT_EQ(std::memcmp(c.data(), whole.data(), c.size() * sizeof(float)), 0)
          << m << " rows of " << n << " x " << k;
    }
  }
}

TEST(SkinnyGemm, RowsAreRightAndDoNotDependOnOthers) {
  strata::fixtures::on_every_target([](int64_t) { expect_right_for_any_number_of_rows(); });
}

}  // namespace
}  // namespace strata::cpu
