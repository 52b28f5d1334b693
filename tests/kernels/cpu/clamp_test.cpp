#include "kernels/cpu/clamp.h"

#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_same_bits;

TEST(Clamp, MatchesTorch) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t n : {0, 1, 7, 63, 511, 70001}) {
      Array x = Array::random(dtype, n, 1), dy = Array::random(dtype, n, 2);
      // Gradients pass exactly at the limits.
      if (n > 6) x.set(3, 0.75), x.set(5, -0.75);
      Array y(dtype, n), dx(dtype, n), want(dtype, n), want_dx(dtype, n);
      for (int64_t i = 0; i < n; ++i) {
        want.set(i, x[i] > 0.75 ? 0.75 : x[i] < -0.75 ? -0.75 : x[i]);
        want_dx.set(i, x[i] > 0.75 || x[i] < -0.75 ? 0.0 : dy[i]);
      }
      clamp_forward(n, y.data(), x.data(), 0.75f, dtype);
      clamp_backward(n, dx.data(), dy.data(), x.data(), 0.75f, dtype);
      EXPECT_TRUE(y.bytes() == want.bytes());
      EXPECT_TRUE(dx.bytes() == want_dx.bytes());
      Array over_dy = dy;
      clamp_backward(n, over_dy.data(), over_dy.data(), x.data(), 0.75f, dtype);
      EXPECT_TRUE(over_dy.bytes() == dx.bytes());
      clamp_backward(n, x.data(), dy.data(), x.data(), 0.75f, dtype);
      EXPECT_TRUE(x.bytes() == dx.bytes());
    }
  }
}

TEST(Clamp, SameBitsForAnyThreads) {
  const Array x = Array::random(DType::kBF16, 70001, 1);
  expect_same_bits([&] {
    Array y(DType::kBF16, x.size());
    clamp_forward(x.size(), y.data(), x.data(), 0.5f, DType::kBF16);
    return y.bytes();
  });
}

}  // namespace
}  // namespace strata::cpu
