#include "kernels/cpu/muon.h"

#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/measure.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using testing::Array;

using Matrix = std::vector<std::vector<double>>;

Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix out(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) out[i][j] += a[i][k] * b[k][j];
    }
  }
  return out;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) out[j][i] = a[i][j];
  }
  return out;
}

// The authors' code, in double.
Matrix newton_schulz(Matrix x, int steps) {
  const bool tall = x.size() > x[0].size();
  if (tall) x = transposed(x);
  double squares = 0;
  for (const auto& row : x) {
    for (const double value : row) squares += value * value;
  }
  for (auto& row : x) {
    for (double& value : row) value /= std::sqrt(squares) + 1e-7;
  }
  for (int step = 0; step < steps; ++step) {
    const Matrix a = multiply(x, transposed(x)), aa = multiply(a, a);
    Matrix b = a;
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < a.size(); ++j) b[i][j] = -4.7750 * a[i][j] + 2.0315 * aa[i][j];
    }
    const Matrix bx = multiply(b, x);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + bx[i][j];
    }
  }
  return tall ? transposed(x) : x;
}

Array zeros(int64_t n) {
  Array array(DType::kF32, n);
  for (int64_t i = 0; i < n; ++i) array.set(i, 0);
  return array;
}

void run(const MuonPlan& plan, Array& p, Array& momentum, const Array& grad, const MuonConstants& constants,
         int32_t skip = 0) {
  const UpdateScalars scalars{.lr = 0.05f, .grad_scale = 0.5f, .skip = skip};
  const Arena scratch(std::max<int64_t>(plan.scratch_bytes, 64));
  std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));
  Muon(plan).update(p.f32(), momentum.f32(), grad.f32(), &scalars, constants, scratch.data());
}

TEST(Muon, MatchesDouble) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 40}, {16, 16}, {20, 48}, {48, 20}, {65, 130}}) {
    for (const bool nesterov : {true, false}) {
      const int64_t n = rows * columns;
      Array p = Array::random(DType::kF32, n, 1), momentum = zeros(n);
      std::vector<double> want = p.values(), m(want.size());
      const MuonPlan plan = plan_muon(rows, columns, describe_device(compute_threads()));
      for (unsigned step = 1; step <= 3; ++step) {
        const Array grad = Array::random(DType::kF32, n, 10 + step);
        run(plan, p, momentum, grad, {.nesterov = nesterov, .weight_decay = 0.1, .lr_scale = 2});
        Matrix x(static_cast<size_t>(rows), std::vector<double>(static_cast<size_t>(columns)));
        for (int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<size_t>(i);
          const double g = 0.5 * grad[i];
          m[at] += 0.05 * (g - m[at]);
          x[static_cast<size_t>(i / columns)][static_cast<size_t>(i % columns)] =
              nesterov ? g + 0.95 * (m[at] - g) : m[at];
        }
        x = newton_schulz(x, 5);
        for (int64_t i = 0; i < n; ++i)
          want[static_cast<size_t>(i)] =
              want[static_cast<size_t>(i)] * (1 - 0.01) -
              0.1 * x[static_cast<size_t>(i / columns)][static_cast<size_t>(i % columns)];
      }
      testing::expect_near(p, want, 2e-5);
      testing::expect_near(momentum, m, 1e-6);
    }
  }
}

TEST(Muon, SameBitsEveryTimeAndNothingWhenSkipped) {
  const int64_t n = 96 * 160;
  const Array start = Array::random(DType::kF32, n, 1), grad = Array::random(DType::kF32, n, 2);
  const MuonPlan plan = plan_muon(96, 160, describe_device(compute_threads()));
  const auto update = [&](int32_t skip) {
    Array p = start, momentum = zeros(n);
    run(plan, p, momentum, grad, {}, skip);
    return p.bytes();
  };
  EXPECT_TRUE(update(0) == update(0));
  EXPECT_TRUE(update(1) == start.bytes());
}

// With a zero gradient only decay changes the parameter.
TEST(Muon, ZeroGradientDoesNotDivideByZero) {
  Array p = Array::random(DType::kF32, 12, 1), momentum = zeros(12);
  const std::vector<double> before = p.values();
  run(plan_muon(3, 4, describe_device(compute_threads())), p, momentum, zeros(12), {});
  testing::expect_near(p, before, 1e-7);
}

}  // namespace
}  // namespace strata::cpu
