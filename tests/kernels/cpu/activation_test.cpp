#include "kernels/cpu/activation.h"

#include <limits>

#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;

double silu(double x) {
  return x / (1 + std::exp(-x));
}
double gelu_tanh(double x) {
  // x (1 + tanh u) / 2 in the form that is accurate for negative u
  return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) {
  return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
}
double relu(double x) {
  return x > 0 ? x : 0;
}
double relu2(double x) {
  return x > 0 ? x * x : 0;
}

double slope(double (*f)(double), double x) {
  if (f == relu) return x > 0 ? 1 : 0;  // finite differences are wrong across kinks
  if (f == relu2) return x > 0 ? 2 * x : 0;
  const double step = 1e-5 * std::max(1.0, std::abs(x));
  return (f(x + step) - f(x - step)) / (2 * step);
}

struct Function {
  const char* name;
  ActivationKind kind;
  double (*value)(double);
};
const Function kFunctions[] = {{"silu", ActivationKind::kSilu, silu},
                               {"gelu_tanh", ActivationKind::kGeluTanh, gelu_tanh},
                               {"gelu_erf", ActivationKind::kGeluErf, gelu_erf},
                               {"relu", ActivationKind::kRelu, relu},
                               {"relu2", ActivationKind::kRelu2, relu2}};

TEST(Activation, GatedMatchesDoubleOnRaggedSizes) {
  for (const Function& f : kFunctions) {
    for (const DType dtype : testing::kActivationTypes) {
      for (const int64_t rows : testing::kRaggedRows) {
        for (const int64_t ffn : testing::kRaggedDims) {
          const Array in = Array::random(dtype, rows * 2 * ffn, 1, 3),
                      dy = Array::random(dtype, rows * ffn, 2);
          Array y(dtype, rows * ffn), d_in(dtype, rows * 2 * ffn);
          gated_forward(f.kind, rows, ffn, y.data(), in.data(), dtype);
          gated_backward(f.kind, rows, ffn, d_in.data(), dy.data(), in.data(), dtype);
          std::vector<double> want(static_cast<size_t>(rows * ffn)),
              d_want(static_cast<size_t>(rows * 2 * ffn));
          for (int64_t row = 0; row < rows; ++row) {
            for (int64_t i = 0; i < ffn; ++i) {
              const int64_t gate = row * 2 * ffn + i, out = row * ffn + i;
              want[static_cast<size_t>(out)] = f.value(in[gate]) * in[gate + ffn];
              d_want[static_cast<size_t>(gate)] = dy[out] * in[gate + ffn] * slope(f.value, in[gate]);
              d_want[static_cast<size_t>(gate + ffn)] = dy[out] * f.value(in[gate]);
            }
          }
          expect_near(y, want, 3e-6, 1e-4);
          expect_near(d_in, d_want, 2e-5, 0.1);
          Array in_place = in;
          gated_backward(f.kind, rows, ffn, in_place.data(), dy.data(), in_place.data(), dtype);
          EXPECT_TRUE(in_place.bytes() == d_in.bytes());
        }
      }
    }
  }
}

TEST(Activation, AccurateToAFewUlpIncludingTails) {
  for (const Function& f : kFunctions) {
    Array x(DType::kF32, 24001);
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, -8 + static_cast<double>(i) * 16 / 24000);
    Array y(DType::kF32, x.size());
    activation_forward(f.kind, x.size(), y.data(), x.data(), DType::kF32);
    for (int64_t i = 0; i < x.size(); ++i) {
      const double want = f.value(x[i]);
      if (std::abs(want) < 1e-30) continue;
      // The exponent of the tanh form is rounded itself: its error grows with the argument.
      const double ulps = f.kind == ActivationKind::kGeluTanh ? 6 + std::abs(3 * x[i] * x[i]) : 8;
      ASSERT_LE(std::abs(y[i] - want), ulps * 6e-8 * std::abs(want)) << f.name << " at " << x[i];
    }
  }
}

TEST(Activation, GradientsMatchFiniteDifferences) {
  for (const Function& f : kFunctions) {
    for (const DType dtype : testing::kActivationTypes) {
      for (const int64_t n : {0, 1, 63, 20000}) {
        const Array x = Array::random(dtype, n, 1, 2), dy = Array::random(dtype, n, 2);
        Array y(dtype, n), dx(dtype, n);
        activation_forward(f.kind, n, y.data(), x.data(), dtype);
        activation_backward(f.kind, n, dx.data(), dy.data(), x.data(), dtype);
        std::vector<double> want, d_want;
        for (int64_t i = 0; i < n; ++i) {
          want.push_back(f.value(x[i]));
          d_want.push_back(dy[i] * slope(f.value, x[i]));
        }
        expect_near(y, want, 3e-6, 1e-4);
        expect_near(dx, d_want, 2e-6);
        Array in_place = x;
        activation_backward(f.kind, n, in_place.data(), dy.data(), in_place.data(), dtype);
        EXPECT_TRUE(in_place.bytes() == dx.bytes());
        in_place = x;
        activation_forward(f.kind, n, in_place.data(), in_place.data(), dtype);
        EXPECT_TRUE(in_place.bytes() == y.bytes());
      }
    }
  }
}

TEST(Activation, ExtremesStayFiniteAndNaNStaysNaN) {
  const double kInfinity = std::numeric_limits<double>::infinity();
  Array x(DType::kF32, 9);
  const double values[] = {-1e30, -1e4, -100, -20, 20, 100, 1e4, kInfinity, NAN};
  for (int64_t i = 0; i < 9; ++i) x.set(i, values[i]);
  Array ones(DType::kF32, 9), y(DType::kF32, 9), dx(DType::kF32, 9);
  for (int64_t i = 0; i < 9; ++i) ones.set(i, 1);
  for (const Function& f : kFunctions) {
    activation_forward(f.kind, 9, y.data(), x.data(), DType::kF32);
    activation_backward(f.kind, 9, dx.data(), ones.data(), x.data(), DType::kF32);
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(y[i], 0, 1e-6) << f.name << " at " << x[i];
      EXPECT_NEAR(dx[i], 0, 1e-6) << f.name << " at " << x[i];
    }
    for (int64_t i = 4; i < 8; ++i) {
      const bool squares = f.kind == ActivationKind::kRelu2;
      EXPECT_EQ(y[i], squares ? x[i] * x[i] : x[i]) << f.name;
      EXPECT_EQ(dx[i], squares ? 2 * x[i] : 1) << f.name << " at " << x[i];
    }
    EXPECT_TRUE(std::isnan(y[8]) && std::isnan(dx[8])) << f.name;
  }
  Array gate_up(DType::kF32, 18);
  for (int64_t i = 0; i < 9; ++i) gate_up.set(i, values[i]), gate_up.set(9 + i, 1);
  gated_forward(ActivationKind::kSilu, 1, 9, y.data(), gate_up.data(), DType::kF32);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], 0, 1e-6);
  for (int64_t i = 5; i < 8; ++i) EXPECT_EQ(y[i], x[i]);
  EXPECT_TRUE(std::isnan(y[8]));
}

TEST(Activation, SameBitsForAnyNumberOfThreads) {
  const Array x = Array::random(DType::kBF16, 50000, 1, 2), dy = Array::random(DType::kBF16, 50000, 2);
  for (const Function& f : kFunctions) {
    expect_same_bits([&] {
      Array dx(DType::kBF16, x.size());
      activation_backward(f.kind, x.size(), dx.data(), dy.data(), x.data(), DType::kBF16);
      return dx.bytes();
    });
  }
  expect_same_bits([&] {
    Array y(DType::kBF16, 25000);
    gated_forward(ActivationKind::kSilu, 50, 500, y.data(), x.data(), DType::kBF16);
    return y.bytes();
  });
}

}  // namespace
}  // namespace strata::cpu
