#include "kernels/cpu/optimizer.h"

#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;

UpdateScalars scalars_at(int step, double lr) {
  return {.lr = static_cast<float>(lr), .grad_scale = 0.5f, .skip = 0, .update = step};
}
constexpr AdamWConstants kConstants{.weight_decay = 0.1f, .lr_scale = 1};

TEST(Optimizer, AdamWMatchesDoubleOverSteps) {
  for (const int64_t n : {0, 1, 63, 511, 40000}) {
    Array p = Array::random(DType::kF32, n, 1), m(DType::kF32, n), v(DType::kF32, n);
    std::vector<double> want_p = p.values(), want_m(static_cast<size_t>(n)), want_v(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) m.set(i, 0), v.set(i, 0);
    const float decay = 0.1f, lr_scale = 2;
    const double lr = 1e-2, beta1 = 0.9, beta2 = 0.95;
    for (int step = 1; step <= 5; ++step) {
      const Array grad = Array::random(DType::kF32, n, 10u + static_cast<unsigned>(step), 0.3);
      const UpdateScalars scalars = scalars_at(step, lr);
      adamw_update(n, {p.f32(), m.f32(), v.f32(), grad.f32()}, &scalars,
                   {.weight_decay = decay, .lr_scale = lr_scale});
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        const double g = grad[i] * 0.5, rate = lr * lr_scale;
        want_p[at] -= rate * decay * want_p[at];
        want_m[at] = beta1 * want_m[at] + (1 - beta1) * g;
        want_v[at] = beta2 * want_v[at] + (1 - beta2) * g * g;
        const double denominator = std::sqrt(want_v[at]) / std::sqrt(1 - std::pow(beta2, step)) + 1e-8;
        want_p[at] -= rate / (1 - std::pow(beta1, step)) * want_m[at] / denominator;
      }
    }
    expect_near(p, want_p, 1e-6);
    expect_near(m, want_m, 1e-6);
    expect_near(v, want_v, 1e-6, 1e-3);
  }
}

// Three steps of torch.optim.AdamW(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1) in float32, torch
// 2.11, written by tools/golden/adamw.py.
TEST(Optimizer, AdamWMatchesTorch) {
  float p[] = {1.0f, -2.0f, 0.5f, 3.0f}, m[4] = {}, v[4] = {};
  const float grads[3][4] = {
      {0.1f, -0.2f, 0.3f, 0.0f}, {-0.4f, 0.05f, 1.5f, 1e-4f}, {0.02f, 0.7f, -2.0f, -3e-3f}};
  const float want[] = {0.996622682f, -1.98444021f, 0.480952442f, 2.98976922f};
  for (int step = 1; step <= 3; ++step) {
    UpdateScalars scalars = scalars_at(step, 0.01);
    scalars.grad_scale = 1;
    adamw_update(4, {p, m, v, grads[step - 1]}, &scalars, {.beta2 = 0.999, .weight_decay = 0.1f});
  }
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(p[i] / want[i], 1, 1.5e-7) << i;
}

TEST(Optimizer, LionMatchesDoubleOverSteps) {
  for (const int64_t n : {0, 1, 63, 511, 40000}) {
    Array p = Array::random(DType::kF32, n, 1), m(DType::kF32, n);
    std::vector<double> want_p = p.values(), want_m(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) m.set(i, 0);
    for (unsigned step = 1; step <= 5; ++step) {
      const Array grad = Array::random(DType::kF32, n, 10 + step, 0.3);
      const UpdateScalars scalars{.lr = 1e-2f, .grad_scale = 0.5f};
      lion_update(n, p.f32(), m.f32(), grad.f32(), &scalars, {0.9, 0.99, 0.1f, 2});
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        const double g = grad[i] * 0.5, mixed = 0.9 * want_m[at] + 0.1 * g;
        // If the sign depends on a rounding, both are right: use the computed one.
        const double sign =
            std::abs(mixed) > 1e-7 ? std::copysign(1.0, mixed) : (want_p[at] * (1 - 2e-3) - p[i]) / 2e-2;
        want_p[at] = want_p[at] * (1 - 2e-2 * 0.1) - 2e-2 * sign;
        want_m[at] = 0.99 * want_m[at] + 0.01 * g;
      }
    }
    expect_near(p, want_p, 1e-6);
    expect_near(m, want_m, 1e-6);
  }
  // A skipped step changes nothing; otherwise nothing changes where momentum and gradient are zero.
  float p[] = {1, 2}, m[] = {0, 0.5f};
  const float grad[] = {0, 1};
  UpdateScalars scalars{.lr = 0.5f};
  lion_update(1, p, m, grad, &scalars, {0.9, 0.99, 0, 1});
  EXPECT_EQ(p[0], 1);
  scalars.skip = 1;
  lion_update(2, p, m, grad, &scalars, {0.9, 0.99, 0.1f, 1});
  EXPECT_EQ(p[1], 2);
  EXPECT_EQ(m[1], 0.5f);
}

TEST(Optimizer, SkipLeavesEverythingUntouched) {
  Array p = Array::random(DType::kF32, 100, 1), m = Array::random(DType::kF32, 100, 2),
        v = Array::random(DType::kF32, 100, 3);
  const Array grad(DType::kF32, 100);  // NaN, as after an overflow
  const auto before = {p.bytes(), m.bytes(), v.bytes()};
  UpdateScalars scalars = scalars_at(1, 0.1);
  scalars.skip = 1;
  adamw_update(100, {p.f32(), m.f32(), v.f32(), grad.f32()}, &scalars, kConstants);
  const auto after = {p.bytes(), m.bytes(), v.bytes()};
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST(Optimizer, NormOfManyTensorsHasOneOrder) {
  const std::vector<int64_t> sizes = {
      0, 1, 7, kNormBlock - 1, kNormBlock, kNormBlock + 1, 3 * kNormBlock + 5};
  std::vector<Array> tensors;
  double want = 0;
  for (const int64_t n : sizes) {
    tensors.push_back(Array::random(DType::kF32, n, static_cast<unsigned>(n), 1e-3));
    for (const double x : tensors.back().values()) want += x * x;
  }
  expect_same_bits([&] {
    std::vector<double> partials;
    for (const Array& tensor : tensors) {
      std::vector<double> own(static_cast<size_t>(norm_partials(tensor.size())), NAN);
      sum_of_squares_partials(tensor.f32(), tensor.size(), own.data());
      partials.insert(partials.end(), own.begin(), own.end());
    }
    double sum = NAN;
    reduce_sum(partials.data(), static_cast<int64_t>(partials.size()), &sum);
    EXPECT_NEAR(sum / want, 1, 1e-12);
    const auto* bytes = reinterpret_cast<const std::byte*>(&sum);
    return std::vector<std::byte>(bytes, bytes + sizeof sum);
  });
}

TEST(Optimizer, SquaresBeyondFloatStayFinite) {
  const float big[] = {1e30f, 1e30f, 1e-30f};
  double partial = 0;
  sum_of_squares_partials(big, 3, &partial);
  EXPECT_NEAR(partial / 2e60, 1, 1e-6);
}

TEST(Optimizer, SameBitsForAnyNumberOfThreads) {
  const Array start = Array::random(DType::kF32, 100001, 1), grad = Array::random(DType::kF32, 100001, 2);
  const UpdateScalars scalars = scalars_at(3, 1e-2);
  for (const auto update : {adamw_update, adopt_update}) {
    expect_same_bits([&] {
      Array p = start, m = start, v = Array::random(DType::kF32, 100001, 3, 0, 1);
      update(p.size(), {p.f32(), m.f32(), v.f32(), grad.f32()}, &scalars, kConstants);
      return p.bytes();
    });
  }
}

}  // namespace
}  // namespace strata::cpu
