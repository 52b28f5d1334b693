#include "kernels/cpu/recurrence_gates.h"

#include <limits>

#include "fixtures/every_target.h"
#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::scratch_of;

double softplus_of(double x) {
  return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
}
double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

// Decays and steps of random projections, and the gradients of sums of both, weighted by dg and dbeta.
struct Gates {
  RecurrenceGatesShape shape;
  Array a, b, a_log, dt_bias, dg, dbeta;
  Array g, beta, da, db, da_log, ddt_bias;

  explicit Gates(const RecurrenceGatesShape& of)
      : shape(of),
        a(Array::random(of.dtype, of.rows * of.width, 1, 3)),
        b(Array::random(of.dtype, of.rows * of.heads, 2, 3)),
        a_log(Array::random(DType::kF32, of.heads, 3)),
        dt_bias(Array::random(DType::kF32, of.width, 4)),
        dg(Array::random(DType::kF32, of.rows * of.width, 5)),
        dbeta(Array::random(DType::kF32, of.rows * of.heads, 6)),
        g(DType::kF32, a.size()),
        beta(DType::kF32, b.size()),
        da(of.dtype, a.size()),
        db(of.dtype, b.size()),
        da_log(DType::kF32, of.heads),
        ddt_bias(DType::kF32, of.width) {}
  bool delta() const { return shape.kind == RecurrenceKind::kDelta; }

  void run() {
    Array scratch = scratch_of(recurrence_gates_scratch_bytes(shape));
    Array more = scratch_of(recurrence_gates_weight_scratch_bytes(shape));
    const RecurrenceGatesWeights weights{a_log.f32(), dt_bias.f32()};
    recurrence_gates_forward(shape, g.f32(), beta.f32(), a.data(), delta() ? b.data() : nullptr, weights,
                             scratch.data());
    recurrence_gates_backward_input(shape, da.data(), delta() ? db.data() : nullptr, dg.f32(), dbeta.f32(),
                                    a.data(), delta() ? b.data() : nullptr, weights, scratch.data());
    recurrence_gates_backward_weight(shape, da_log.f32(), ddt_bias.f32(), dg.f32(),
                                     delta() ? nullptr : dbeta.f32(), a.data(), weights, false, false,
                                     more.data());
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const Array* one : {&g, &beta, &da, &da_log, &ddt_bias})
      all.insert(all.end(), one->bytes().begin(), one->bytes().end());
    if (delta()) all.insert(all.end(), db.bytes().begin(), db.bytes().end());
    return all;
  }

  // The formulas in double.
  void check() const {
    const int64_t channels = shape.width / shape.heads;
    std::vector<double> want_g, want_beta, want_da, want_db, want_logs(static_cast<size_t>(shape.heads)),
        want_biases(static_cast<size_t>(shape.width));
    for (int64_t i = 0; i < a.size(); ++i) {
      const int64_t c = i % shape.width, head = c / channels;
      const double x = a[i] + dt_bias[c], rate = std::exp(a_log[head]);
      double step = softplus_of(x), slope = sigmoid_of(x), dstep = -rate * dg[i];
      if (!delta()) {
        dstep += dbeta[i];
        if (step < shape.least || step > shape.greatest) slope = 0;
        step = std::min(std::max<double>(step, shape.least), double{shape.greatest});
        want_beta.push_back(step);
      }
      want_g.push_back(-rate * step);
      want_da.push_back(dstep * slope);
      want_logs[static_cast<size_t>(head)] -= rate * step * dg[i];
      want_biases[static_cast<size_t>(c)] += dstep * slope;
    }
    for (int64_t i = 0; delta() && i < b.size(); ++i) {
      const double s = sigmoid_of(b[i]);
      want_beta.push_back(double{shape.beta_scale} * s);
      want_db.push_back(double{shape.beta_scale} * dbeta[i] * s * (1 - s));
    }
    expect_near(g, want_g, 2e-6, 1e-3);
    expect_near(beta, want_beta, 1e-6, 1e-3);
    expect_near(da, want_da, 3e-6);
    if (delta()) expect_near(db, want_db, 2e-6);
    const double rows = std::sqrt(static_cast<double>(shape.rows * channels)) + 1;
    expect_near(da_log, want_logs, 2e-5, rows);
    expect_near(ddt_bias, want_biases, 2e-5, rows);
  }
};

std::vector<RecurrenceGatesShape> shapes(DType dtype) {
  std::vector<RecurrenceGatesShape> all;
  for (const int64_t rows : {0, 1, 257})
    for (const int64_t heads : {1, 5, 32})
      for (const int64_t channels : {1, 20, 128})
        all.push_back({.rows = rows,
                       .heads = heads,
                       .width = heads * channels,
                       .beta_scale = channels == 20 ? 2.0f : 1.0f,
                       .dtype = dtype});
  for (const int64_t rows : {0, 1, 257})
    for (const int64_t heads : {1, 23, 80})
      all.push_back({.rows = rows,
                     .heads = heads,
                     .width = heads,
                     .kind = RecurrenceKind::kStateSpace,
                     .least = rows == 1 ? 0.0f : 0.25f,
                     .greatest = rows == 1 ? std::numeric_limits<float>::infinity() : 2.5f,
                     .dtype = dtype});
  return all;
}

TEST(RecurrenceGates, MatchDoubleOnRaggedSizes) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const RecurrenceGatesShape& shape : shapes(dtype)) {
      SCOPED_TRACE(::testing::Message() << shape.rows << " rows of " << shape.width << " in " << shape.heads);
      Gates gates(shape);
      gates.run();
      gates.check();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Every instruction set, near the edges of a vector.
TEST(RecurrenceGates, MatchDoubleOnEveryTarget) {
  fixtures::on_every_target([](int64_t) {
    Gates gates({.rows = 9, .heads = 3, .width = 51});
    gates.run();
    gates.check();
  });
}

TEST(RecurrenceGates, AddToParameterGradients) {
  Gates gates({.rows = 40, .heads = 4, .width = 12});
  gates.run();
  Array logs = gates.da_log, biases = gates.ddt_bias;
  Array scratch = scratch_of(recurrence_gates_weight_scratch_bytes(gates.shape));
  recurrence_gates_backward_weight(gates.shape, logs.f32(), biases.f32(), gates.dg.f32(), nullptr,
                                   gates.a.data(), {gates.a_log.f32(), gates.dt_bias.f32()}, true, true,
                                   scratch.data());
  for (int64_t i = 0; i < logs.size(); ++i) EXPECT_EQ(logs[i], 2 * gates.da_log[i]);
  for (int64_t i = 0; i < biases.size(); ++i) EXPECT_EQ(biases[i], 2 * gates.ddt_bias[i]);
}

TEST(RecurrenceGates, GradientsMayOverwriteTheirInputs) {
  for (const DType dtype : testing::kActivationTypes) {
    Gates gates({.rows = 30, .heads = 5, .width = 35, .dtype = dtype});
    gates.run();
    Array a = gates.a, b = gates.b, scratch = scratch_of(recurrence_gates_scratch_bytes(gates.shape));
    recurrence_gates_backward_input(gates.shape, a.data(), b.data(), gates.dg.f32(), gates.dbeta.f32(),
                                    a.data(), b.data(), {gates.a_log.f32(), gates.dt_bias.f32()},
                                    scratch.data());
    EXPECT_TRUE(a.bytes() == gates.da.bytes());
    EXPECT_TRUE(b.bytes() == gates.db.bytes());
  }
}

// softplus(x) ≈ eˣ far below zero and x far above it, without overflow; a_log of −∞ decays nothing.
TEST(RecurrenceGates, KeepTheirAccuracyInBothTails) {
  const double values[] = {-1e30, -80, -20, -5, 0, 5, 20, 80, 1e4, 1e30};
  Gates gates({.rows = 10, .heads = 2, .width = 2});
  gates.dt_bias.set(0, 0), gates.dt_bias.set(1, 0);
  gates.a_log.set(0, 0), gates.a_log.set(1, -std::numeric_limits<double>::infinity());
  for (int64_t i = 0; i < 20; ++i) gates.a.set(i, values[i / 2]), gates.dg.set(i, 1);
  gates.run();
  for (int64_t row = 0; row < 10; ++row) {
    const double want = -softplus_of(values[row]), slope = -sigmoid_of(values[row]);
    EXPECT_NEAR(gates.g[2 * row], want, 5e-7 * std::abs(want) + 1e-37) << values[row];
    EXPECT_NEAR(gates.da[2 * row], slope, 5e-7 * std::abs(slope) + 1e-37) << values[row];
    EXPECT_EQ(gates.g[2 * row + 1], 0) << values[row];
  }
  Gates bad({.rows = 2, .heads = 1, .width = 1});
  bad.a.set(0, std::numeric_limits<double>::quiet_NaN());
  bad.run();
  EXPECT_TRUE(std::isnan(bad.g[0]));
  EXPECT_TRUE(std::isnan(bad.da[0]));
  EXPECT_FALSE(std::isnan(bad.g[1]));
}

TEST(RecurrenceGates, SameBitsForAnyThreads) {
  for (const RecurrenceGatesShape& shape :
       {RecurrenceGatesShape{.rows = 3000, .heads = 8, .width = 160, .dtype = DType::kBF16},
        RecurrenceGatesShape{.rows = 9001,
        .heads = 24,
        .width = 24,
        .kind = RecurrenceKind::kStateSpace,
        .least = 0.1f,
        .greatest = 3.0f}}) {
    Gates gates(shape);
    expect_same_bits([&] {
      gates.run();
      return gates.bytes();
    });
  }
}

}  // namespace
}  // namespace strata::cpu
