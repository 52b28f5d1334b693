#include "kernels/cpu/gate.h"

#include <limits>

#include "fixtures/every_target.h"
#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;

constexpr GateKind kGates[] = {GateKind::kIdentity, GateKind::kSigmoid, GateKind::kSilu};

double gate_of(GateKind kind, double z) {
  const double s = 1 / (1 + std::exp(-z));
  return kind == GateKind::kIdentity ? z : kind == GateKind::kSigmoid ? s : z * s;
}
double gate_slope(GateKind kind, double z) {
  const double s = 1 / (1 + std::exp(-z));
  if (kind == GateKind::kIdentity) return 1;
  return kind == GateKind::kSigmoid ? s * (1 - s) : s * (1 + z * (1 - s));
}

TEST(Gate, MatchesDouble) {
  for (const GateKind kind : kGates) {
    for (const DType dtype : testing::kActivationTypes) {
      for (const int64_t n : {0, 1, 63, 20000}) {
        const Array x = Array::random(dtype, n, 1), gate = Array::random(dtype, n, 2, 3),
                    dy = Array::random(dtype, n, 3);
        Array y(dtype, n), dx(dtype, n), dgate(dtype, n);
        gate_forward(kind, n, y.data(), x.data(), gate.data(), dtype);
        gate_backward(kind, n, dx.data(), dgate.data(), dy.data(), x.data(), gate.data(), dtype);
        std::vector<double> want, want_x, want_gate;
        for (int64_t i = 0; i < n; ++i) {
          want.push_back(x[i] * gate_of(kind, gate[i]));
          want_x.push_back(dy[i] * gate_of(kind, gate[i]));
          want_gate.push_back(dy[i] * x[i] * gate_slope(kind, gate[i]));
        }
        expect_near(y, want, 2e-6, 1e-2);
        expect_near(dx, want_x, 2e-6, 1e-2);
        expect_near(dgate, want_gate, 3e-6, 0.1);
        // Over their inputs.
        Array over = x;
        gate_forward(kind, n, over.data(), over.data(), gate.data(), dtype);
        EXPECT_TRUE(over.bytes() == y.bytes());
        over = gate;
        gate_forward(kind, n, over.data(), x.data(), over.data(), dtype);
        EXPECT_TRUE(over.bytes() == y.bytes());
        Array over_x = x;
        over = gate;
        gate_backward(kind, n, over_x.data(), over.data(), dy.data(), over_x.data(), over.data(), dtype);
        EXPECT_TRUE(over_x.bytes() == dx.bytes());
        EXPECT_TRUE(over.bytes() == dgate.bytes());
      }
    }
  }
}

TEST(Gate, MatchesDoubleOnEveryTarget) {
  fixtures::on_every_target([](int64_t) {
    for (const GateKind kind : kGates) {
      const Array x = Array::random(DType::kF32, 37, 1), gate = Array::random(DType::kF32, 37, 2, 3);
      Array y(DType::kF32, 37);
      gate_forward(kind, 37, y.data(), x.data(), gate.data(), DType::kF32);
      std::vector<double> want;
      for (int64_t i = 0; i < 37; ++i) want.push_back(x[i] * gate_of(kind, gate[i]));
      expect_near(y, want, 2e-6, 1e-2);
    }
  });
}

TEST(Gate, ClosesAndOpensFully) {
  const double gates[] = {-std::numeric_limits<double>::infinity(), -1e4, 1e4,
                          std::numeric_limits<double>::quiet_NaN()};
  Array x(DType::kF32, 4), gate(DType::kF32, 4), y(DType::kF32, 4), dx(DType::kF32, 4), dgate(DType::kF32, 4);
  for (int64_t i = 0; i < 4; ++i) x.set(i, 3), gate.set(i, gates[i]);
  gate_forward(GateKind::kSigmoid, 4, y.data(), x.data(), gate.data(), DType::kF32);
  gate_backward(GateKind::kSigmoid, 4, dx.data(), dgate.data(), x.data(), x.data(), gate.data(), DType::kF32);
  EXPECT_NEAR(y[0], 0, 1e-30);
  EXPECT_NEAR(y[1], 0, 1e-30);
  EXPECT_EQ(y[2], 3);
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(dgate[i], 0, 1e-30);
  EXPECT_TRUE(std::isnan(y[3]) && std::isnan(dgate[3]));
}

TEST(Gate, SameBitsForAnyThreads) {
  const Array x = Array::random(DType::kBF16, 70001, 1), gate = Array::random(DType::kBF16, 70001, 2, 3);
  expect_same_bits([&] {
    Array dx(DType::kBF16, x.size()), dgate(DType::kBF16, x.size());
    gate_backward(GateKind::kSilu, x.size(), dx.data(), dgate.data(), x.data(), x.data(), gate.data(),
                  DType::kBF16);
    return dgate.bytes();
  });
}

}  // namespace
}  // namespace strata::cpu
