#include "kernels/cpu/norm.h"

#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::scratch_of;

constexpr float kEps = 1e-5f;

struct Statistics {
  double mean, rstd;
};

Statistics statistics(const double* h, int64_t dim, bool centered) {
  double mean = 0, squares = 0;
  for (int64_t i = 0; centered && i < dim; ++i) mean += h[i] / static_cast<double>(dim);
  for (int64_t i = 0; i < dim; ++i) squares += (h[i] - mean) * (h[i] - mean) / static_cast<double>(dim);
  return {mean, 1 / std::sqrt(squares + double{kEps})};
}

// sum(dy * norm(h)) of one row, in double.
double row_loss(const std::vector<double>& h, const std::vector<double>& weight,
                const std::vector<double>& bias, const std::vector<double>& dy, bool centered) {
  const auto dim = static_cast<int64_t>(weight.size());
  double loss = 0;
  for (size_t row = 0; row * weight.size() < h.size(); ++row) {
    const double* const at = h.data() + row * weight.size();
    const Statistics s = statistics(at, dim, centered);
    for (size_t i = 0; i < weight.size(); ++i) {
      loss += dy[row * weight.size() + i] * ((at[i] - s.mean) * s.rstd * weight[i] + bias[i]);
    }
  }
  return loss;
}

// Common interface of both norms: only the centered one uses mean, bias and db.
struct Norm {
  bool centered;
  void forward(const NormShape& shape, void* y, void* h, Array& mean, Array& rstd, const void* x,
               const void* residual, const Array& weight, const Array& bias) const {
    if (centered) {
      layer_norm_forward(shape, y, h, mean.f32(), rstd.f32(), x, residual, weight.f32(), bias.f32());
    } else {
      rms_norm_forward(shape, y, h, rstd.f32(), x, residual, weight.f32());
    }
  }
  void backward_input(const NormShape& shape, void* dx, const void* dy, const void* h, const Array& mean,
                      const Array& rstd, const Array& weight, const void* dh) const {
    if (centered) {
      layer_norm_backward_input(shape, dx, dy, h, mean.f32(), rstd.f32(), weight.f32(), dh);
    } else {
      rms_norm_backward_input(shape, dx, dy, h, rstd.f32(), weight.f32(), dh);
    }
  }
  void backward_weight(const NormShape& shape, Array& dw, Array& db, const void* dy, const void* h,
                       const Array& mean, const Array& rstd, bool accumulate) const {
    if (centered) {
      Array scratch = scratch_of(layer_norm_weight_scratch_bytes(shape));
      layer_norm_backward_weight(shape, dw.f32(), db.f32(), dy, h, mean.f32(), rstd.f32(), accumulate,
                                 scratch.data());
    } else {
      Array scratch = scratch_of(rms_norm_weight_scratch_bytes(shape));
      rms_norm_backward_weight(shape, dw.f32(), dy, h, rstd.f32(), accumulate, scratch.data());
    }
  }
};

class NormTest : public ::testing::TestWithParam<bool> {
 protected:
  Norm norm_{GetParam()};
};

TEST_P(NormTest, ForwardMatchesDoubleOnRaggedSizes) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t rows : testing::kRaggedRows) {
      for (const int64_t dim : testing::kRaggedDims) {
        const NormShape shape{rows, dim, kEps, dtype};
        const int64_t n = rows * dim;
        const Array x = Array::random(dtype, n, 1, 1, 0.5), residual = Array::random(dtype, n, 2);
        const Array weight = Array::random(DType::kF32, dim, 3), bias = Array::random(DType::kF32, dim, 4);
        Array y(dtype, n), h(dtype, n), mean(DType::kF32, rows), rstd(DType::kF32, rows);
        norm_.forward(shape, y.data(), h.data(), mean, rstd, x.data(), residual.data(), weight, bias);
        std::vector<double> sum(static_cast<size_t>(n)), want(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] = x[i] + residual[i];
        expect_near(h, sum, 1e-7);
        const std::vector<double> stored = h.values();
        for (int64_t row = 0; row < rows; ++row) {
          const Statistics s = statistics(stored.data() + row * dim, dim, norm_.centered);
          EXPECT_NEAR(rstd[row] / s.rstd, 1, 1e-5);
          for (int64_t i = 0; i < dim; ++i) {
            want[static_cast<size_t>(row * dim + i)] =
                (h[row * dim + i] - s.mean) * s.rstd * weight[i] + (norm_.centered ? bias[i] : 0);
          }
        }
        expect_near(y, want, 1e-5);

        // Without a residual, x itself is normalised and h is not written.
        Array again(dtype, n);
        norm_.forward(shape, again.data(), nullptr, mean, rstd, h.data(), nullptr, weight, bias);
        EXPECT_TRUE(again.bytes() == y.bytes());
      }
    }
  }
}

TEST_P(NormTest, AliasesGiveTheSameBits) {
  const NormShape shape{5, 63, kEps, DType::kBF16};
  const int64_t n = shape.rows * shape.dim;
  const Array x = Array::random(shape.dtype, n, 1), residual = Array::random(shape.dtype, n, 2);
  const Array weight = Array::random(DType::kF32, shape.dim, 3),
              bias = Array::random(DType::kF32, shape.dim, 4);
  const Array dy = Array::random(shape.dtype, n, 5), dh = Array::random(shape.dtype, n, 6);
  Array y(shape.dtype, n), h(shape.dtype, n), mean(DType::kF32, shape.rows), rstd(DType::kF32, shape.rows);
  norm_.forward(shape, y.data(), h.data(), mean, rstd, x.data(), residual.data(), weight, bias);
  Array x2 = x, residual2 = residual, y2(shape.dtype, n);
  norm_.forward(shape, y2.data(), x2.data(), mean, rstd, x2.data(), residual.data(), weight, bias);
  EXPECT_TRUE(x2.bytes() == h.bytes() && y2.bytes() == y.bytes());
  x2 = x;
  norm_.forward(shape, x2.data(), residual2.data(), mean, rstd, x2.data(), residual2.data(), weight, bias);
  EXPECT_TRUE(residual2.bytes() == h.bytes() && x2.bytes() == y.bytes());

  Array dx(shape.dtype, n), dh2 = dh, dy2 = dy;
  norm_.backward_input(shape, dx.data(), dy.data(), h.data(), mean, rstd, weight, dh.data());
  norm_.backward_input(shape, dh2.data(), dy.data(), h.data(), mean, rstd, weight, dh2.data());
  norm_.backward_input(shape, dy2.data(), dy2.data(), h.data(), mean, rstd, weight, dh.data());
  EXPECT_TRUE(dh2.bytes() == dx.bytes());
  EXPECT_TRUE(dy2.bytes() == dx.bytes());
}

TEST_P(NormTest, GradientsMatchFiniteDifferences) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1, 1}, {3, 20}, {7, 63}}) {
      const NormShape shape{rows, dim, kEps, dtype};
      const int64_t n = rows * dim;
      const Array h = Array::random(dtype, n, 1, 1, 0.3), dy = Array::random(dtype, n, 2);
      const Array dh = Array::random(dtype, n, 3);
      const Array weight = Array::random(DType::kF32, dim, 4), bias = Array::random(DType::kF32, dim, 5);
      Array y(dtype, n), mean(DType::kF32, rows), rstd(DType::kF32, rows), dx(dtype, n);
      norm_.forward(shape, y.data(), nullptr, mean, rstd, h.data(), nullptr, weight, bias);
      norm_.backward_input(shape, dx.data(), dy.data(), h.data(), mean, rstd, weight, nullptr);
      const auto loss_of_h = [&](const std::vector<double>& v) {
        return row_loss(v, weight.values(), bias.values(), dy.values(), norm_.centered);
      };
      std::vector<double> want = testing::numeric_gradient(h.values(), loss_of_h);
      expect_near(dx, want, 2e-5);
      norm_.backward_input(shape, dx.data(), dy.data(), h.data(), mean, rstd, weight, dh.data());
      for (int64_t i = 0; i < n; ++i) want[static_cast<size_t>(i)] += dh[i];
      expect_near(dx, want, 2e-5);

      Array dw(DType::kF32, dim), db(DType::kF32, dim);
      norm_.backward_weight(shape, dw, db, dy.data(), h.data(), mean, rstd, false);
      expect_near(dw,
                  testing::numeric_gradient(weight.values(),
                                            [&](const std::vector<double>& v) {
                                              return row_loss(h.values(), v, bias.values(), dy.values(),
                                                              norm_.centered);
                                            }),
                  2e-5);
      if (!norm_.centered) continue;
      expect_near(db,
                  testing::numeric_gradient(bias.values(),
                                            [&](const std::vector<double>& v) {
                                              return row_loss(h.values(), weight.values(), v, dy.values(),
                                                              true);
                                            }),
                  2e-5);
    }
  }
}

TEST_P(NormTest, WeightGradientSumsAllRowsAndAccumulates) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t rows : testing::kRaggedRows) {
      for (const int64_t dim : testing::kRaggedDims) {
        const NormShape shape{rows, dim, kEps, dtype};
        const Array dy = Array::random(dtype, rows * dim, 1), h = Array::random(dtype, rows * dim, 2);
        const Array mean = Array::random(DType::kF32, rows, 3), rstd = Array::random(DType::kF32, rows, 4);
        std::vector<double> want_w(static_cast<size_t>(dim)), want_b(static_cast<size_t>(dim));
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < dim; ++i) {
            const double d = dy[row * dim + i], center = norm_.centered ? mean[row] : 0;
            want_w[static_cast<size_t>(i)] += d * (h[row * dim + i] - center) * rstd[row];
            want_b[static_cast<size_t>(i)] += d;
          }
        }
        Array dw(DType::kF32, dim), db(DType::kF32, dim);
        norm_.backward_weight(shape, dw, db, dy.data(), h.data(), mean, rstd, false);
        expect_near(dw, want_w, 1e-5, 10);
        norm_.backward_weight(shape, dw, db, dy.data(), h.data(), mean, rstd, true);
        for (double& w : want_w) w *= 2;
        expect_near(dw, want_w, 1e-5, 10);
        for (double& b : want_b) b *= 2;
        if (norm_.centered) expect_near(db, want_b, 1e-5, 10);
      }
    }
  }
}

TEST_P(NormTest, SameBitsForAnyNumberOfThreads) {
  const NormShape shape{257, 511, kEps, DType::kBF16};
  const int64_t n = shape.rows * shape.dim;
  const Array x = Array::random(shape.dtype, n, 1), weight = Array::random(DType::kF32, shape.dim, 2);
  expect_same_bits([&] {
    Array y(shape.dtype, n), mean(DType::kF32, shape.rows), rstd(DType::kF32, shape.rows);
    Array dw(DType::kF32, shape.dim), db(DType::kF32, shape.dim), dx(shape.dtype, n);
    norm_.forward(shape, y.data(), nullptr, mean, rstd, x.data(), nullptr, weight, weight);
    norm_.backward_weight(shape, dw, db, y.data(), x.data(), mean, rstd, false);
    norm_.backward_input(shape, dx.data(), y.data(), x.data(), mean, rstd, weight, x.data());
    auto all = dw.bytes();
    for (const Array* a : {&y, &rstd, &dx, &db}) all.insert(all.end(), a->bytes().begin(), a->bytes().end());
    return all;
  });
}

INSTANTIATE_TEST_SUITE_P(RmsAndLayer, NormTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "LayerNorm" : "RmsNorm"; });

}  // namespace
}  // namespace strata::cpu
