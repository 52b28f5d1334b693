#include "kernels/cpu/gated_norm.h"

#include "fixtures/every_target.h"
#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::scratch_of;

struct GatedNormed {
  GatedNormShape shape;
  Array x, gate, dy, weight, y, rstd, dx, dgate, dw;

  explicit GatedNormed(const GatedNormShape& of)
      : shape(of),
        x(Array::random(of.dtype, of.rows * columns(), 1, 1, 0.3)),
        gate(Array::random(of.dtype, x.size(), 2, 2)),
        dy(Array::random(of.dtype, x.size(), 3)),
        weight(Array::random(DType::kF32, of.shared ? of.width : columns(), 4, 0.3, 1)),
        y(of.dtype, x.size()),
        rstd(DType::kF32, of.rows * of.groups),
        dx(of.dtype, x.size()),
        dgate(of.dtype, x.size()),
        dw(DType::kF32, weight.size()) {}
  int64_t columns() const { return shape.groups * shape.width; }

  void run(bool accumulate = false) {
    gated_norm_forward(shape, y.data(), rstd.f32(), x.data(), gate.data(), weight.f32(), nullptr);
    gated_norm_backward_input(shape, dx.data(), dgate.data(), dy.data(), x.data(), gate.data(), rstd.f32(),
                              weight.f32(), nullptr);
    Array scratch = scratch_of(gated_norm_weight_scratch_bytes(shape));
    gated_norm_backward_weight(shape, dw.f32(), dy.data(), x.data(), gate.data(), rstd.f32(), accumulate,
                               scratch.data());
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const Array* one : {&y, &rstd, &dx, &dgate, &dw})
      all.insert(all.end(), one->bytes().begin(), one->bytes().end());
    return all;
  }

  double function(double z) const {
    const double s = 1 / (1 + std::exp(-z));
    return shape.gate == GateKind::kSilu ? z * s : s;
  }
  // y of one group in double.
  std::vector<double> group(const std::vector<double>& of_x, const std::vector<double>& of_gate,
                            const std::vector<double>& of_weight) const {
    std::vector<double> h = of_x;
    double squares = 0;
    for (size_t i = 0; i < h.size(); ++i) {
      if (shape.gate_first) h[i] *= function(of_gate[i]);
      squares += h[i] * h[i];
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(h.size()) + double{shape.eps});
    for (size_t i = 0; i < h.size(); ++i)
      h[i] *= scale * of_weight[i] * (shape.gate_first ? 1 : function(of_gate[i]));
    return h;
  }
  // Against the formula in double, and gradients against differences of it.
  void check() const {
    const auto width = static_cast<size_t>(shape.width);
    std::vector<double> want, want_x, want_gate, want_w(static_cast<size_t>(weight.size()));
    for (int64_t g = 0; g < shape.rows * shape.groups; ++g) {
      const int64_t first = g * shape.width, own = shape.shared ? 0 : g % shape.groups * shape.width;
      const auto part = [&](const Array& of, int64_t from) {
        const auto all = of.values();
        return std::vector<double>(all.begin() + from, all.begin() + from + shape.width);
      };
      const auto at_x = part(x, first), at_gate = part(gate, first), at_dy = part(dy, first),
                 at_weight = part(weight, own);
      const auto loss = [&](const std::vector<double>& a, const std::vector<double>& b,
                            const std::vector<double>& c) {
        const auto out = group(a, b, c);
        double sum = 0;
        for (size_t i = 0; i < width; ++i) sum += out[i] * at_dy[i];
        return sum;
      };
      const auto out = group(at_x, at_gate, at_weight);
      want.insert(want.end(), out.begin(), out.end());
      const auto of_x =
          testing::numeric_gradient(at_x, [&](const auto& v) { return loss(v, at_gate, at_weight); });
      const auto of_gate =
          testing::numeric_gradient(at_gate, [&](const auto& v) { return loss(at_x, v, at_weight); });
      const auto of_w =
          testing::numeric_gradient(at_weight, [&](const auto& v) { return loss(at_x, at_gate, v); });
      want_x.insert(want_x.end(), of_x.begin(), of_x.end());
      want_gate.insert(want_gate.end(), of_gate.begin(), of_gate.end());
      for (size_t i = 0; i < width; ++i) want_w[static_cast<size_t>(own) + i] += of_w[i];
    }
    expect_near(y, want, 4e-6);
    expect_near(dx, want_x, 2e-5);
    expect_near(dgate, want_gate, 2e-5);
    expect_near(dw, want_w, 2e-5, std::sqrt(static_cast<double>(shape.rows * shape.groups)) + 1);
  }
};

std::vector<GatedNormShape> gated_shapes(DType dtype) {
  std::vector<GatedNormShape> all;
  for (const auto& [rows, groups, width] : std::vector<std::array<int64_t, 3>>{
           {0, 4, 16}, {1, 1, 1}, {1, 3, 7}, {37, 2, 20}, {3, 1, 63}, {35, 3, 33}})
    for (const bool first : {false, true})
      for (const GateKind gate : {GateKind::kSilu, GateKind::kSigmoid})
        for (const bool shared : {false, true})
          all.push_back({.rows = rows,
                         .groups = groups,
                         .width = width,
                         .gate_first = first,
                         .gate = gate,
                         .shared = shared,
                         .dtype = dtype});
  return all;
}

TEST(GatedNorm, MatchesDifferencesOnRaggedSizes) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const GatedNormShape& shape : gated_shapes(dtype)) {
      SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", " << shape.rows << " rows of " << shape.groups
                                        << " x " << shape.width << (shape.gate_first ? ", gate first" : "")
                                        << (shape.shared ? ", shared" : ""));
      GatedNormed one(shape);
      one.run();
      one.check();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GatedNorm, MatchesDifferencesOnEveryTarget) {
  fixtures::on_every_target([](int64_t) {
    for (const bool first : {false, true}) {
      GatedNormed one({.rows = 3, .groups = 2, .width = 37, .gate_first = first, .shared = false});
      one.run();
      one.check();
    }
  });
}

TEST(GatedNorm, WritesOverItsInputsAndAddsToWeights) {
  for (const bool first : {false, true}) {
    GatedNormed one({.rows = 40, .groups = 3, .width = 24, .gate_first = first, .dtype = DType::kBF16});
    one.run();
    const Array dw = one.dw;
    Array over = one.x, more = one.rstd;
    gated_norm_forward(one.shape, over.data(), more.f32(), over.data(), one.gate.data(), one.weight.f32(),
                       nullptr);
    EXPECT_TRUE(over.bytes() == one.y.bytes());
    over = one.gate;
    gated_norm_forward(one.shape, over.data(), more.f32(), one.x.data(), over.data(), one.weight.f32(),
                       nullptr);
    EXPECT_TRUE(over.bytes() == one.y.bytes());
    Array over_dy = one.dy, over_gate = one.gate;
    gated_norm_backward_input(one.shape, over_dy.data(), over_gate.data(), over_dy.data(), one.x.data(),
                              over_gate.data(), one.rstd.f32(), one.weight.f32(), nullptr);
    EXPECT_TRUE(over_dy.bytes() == one.dx.bytes());
    EXPECT_TRUE(over_gate.bytes() == one.dgate.bytes());
    one.run(true);
    for (int64_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(one.dw[i], 2 * dw[i], 1e-5 * (1 + std::abs(dw[i])));
  }
}

// Ranks that share a group, with the sums of their means, have the parts of the whole.
TEST(GatedNorm, OfPartsWithMeansIsThatOfTheGroup) {
  constexpr int64_t kRows = 19, kColumns = 96, kRanks = 3, kPart = kColumns / kRanks;
  for (const bool first : {false, true}) {
    GatedNormed whole({.rows = kRows, .width = kColumns, .gate_first = first, .shared = false});
    whole.run();
    GatedNormShape of_part = whole.shape;
    of_part.width = kPart;
    std::vector<GatedNormed> parts(kRanks, GatedNormed(of_part));
    Array means(DType::kF32, kRows), slopes(DType::kF32, kRows);
    for (int64_t row = 0; row < kRows; ++row) means.set(row, 0), slopes.set(row, 0);
    const auto add = [](Array& sum, const Array& term) {
      for (int64_t row = 0; row < kRows; ++row) sum.set(row, sum[row] + term[row]);
    };
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      GatedNormed& part = parts[static_cast<size_t>(rank)];
      for (int64_t i = 0; i < kRows * kPart; ++i) {
        const int64_t from = i / kPart * kColumns + rank * kPart + i % kPart;
        part.x.set(i, whole.x[from]), part.gate.set(i, whole.gate[from]), part.dy.set(i, whole.dy[from]);
      }
      for (int64_t i = 0; i < kPart; ++i) part.weight.set(i, whole.weight[rank * kPart + i]);
      Array own(DType::kF32, kRows);
      gated_norm_means(of_part, kColumns, own.f32(), part.x.data(), part.gate.data(), nullptr, nullptr);
      add(means, own);
      gated_norm_means(of_part, kColumns, own.f32(), part.x.data(), part.gate.data(), part.dy.data(),
                       part.weight.f32());
      add(slopes, own);
    }
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      GatedNormed& part = parts[static_cast<size_t>(rank)];
      gated_norm_forward(of_part, part.y.data(), part.rstd.f32(), part.x.data(), part.gate.data(),
                         part.weight.f32(), means.f32());
      gated_norm_backward_input(of_part, part.dx.data(), part.dgate.data(), part.dy.data(), part.x.data(),
                                part.gate.data(), part.rstd.f32(), part.weight.f32(), slopes.f32());
      for (int64_t i = 0; i < kRows * kPart; ++i) {
        const int64_t from = i / kPart * kColumns + rank * kPart + i % kPart;
        ASSERT_NEAR(part.y[i], whole.y[from], 1e-5);
        ASSERT_NEAR(part.dx[i], whole.dx[from], 1e-5);
        ASSERT_NEAR(part.dgate[i], whole.dgate[from], 1e-5);
      }
    }
  }
}

TEST(GatedNorm, SameBitsForAnyThreads) {
  for (const bool shared : {false, true}) {
    GatedNormed one({.rows = 500,
                     .groups = 5,
                     .width = 128,
                     .gate_first = !shared,
                     .shared = shared,
                     .dtype = DType::kBF16});
    expect_same_bits([&] {
      one.run();
      return one.bytes();
    });
  }
}

}  // namespace
}  // namespace strata::cpu
