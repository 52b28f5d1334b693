#include <gtest/gtest.h>

#include "kernels/cpu/gemm.h"

namespace strata::cpu {
namespace {

TEST(GemmCost, CountsMultiplicationsAndBytes) {
  GemmSpec spec{.role = GemmRole::kForward, .m = 2, .n = 3, .k = 5, .bias = true};
  EXPECT_EQ(gemm_cost(spec).flops, 60);
  EXPECT_EQ(gemm_cost(spec).bytes, 4 * (10 + 15 + 6 + 3));
  spec = {.role = GemmRole::kWeightGrad, .m = 2, .n = 3, .k = 5, .dtype = DType::kBF16, .accumulate = true};
  EXPECT_EQ(gemm_cost(spec).bytes, 2 * (6 + 10) + 8 * 15);
  spec.m = 0;
  EXPECT_EQ(gemm_cost(spec).flops, 0);
}

}  // namespace
}  // namespace strata::cpu
