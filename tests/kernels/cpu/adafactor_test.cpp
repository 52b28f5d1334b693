#include "kernels/cpu/adafactor.h"

#include "kernels/cpu/array_testing.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;

constexpr AdafactorConstants kConstants{
    .eps1 = 0x1p-23, .clip_threshold = 0.8, .weight_decay = 0.1, .lr_scale = 2};

UpdateScalars scalars_at(int64_t step) {
  return {.lr = 0.04f, .grad_scale = 0.5f, .update = step};
}

Array zeros(int64_t n) {
  Array array(DType::kF32, n);
  for (int64_t i = 0; i < n; ++i) array.set(i, 0);
  return array;
}

double mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum / static_cast<double>(x.size());
}

// The update in double, from the second moment of each element.
void step_in_double(std::vector<double>& p, const std::vector<double>& g, const std::vector<double>& second,
                    double t) {
  const double rate = 0.04 * 2, eps1 = 0x1p-23;
  const double alpha = std::max(1e-3, std::sqrt(mean_square(p))) * std::min(rate, 1 / std::sqrt(t));
  std::vector<double> u;
  for (size_t i = 0; i < p.size(); ++i) u.push_back(g[i] / std::sqrt(std::max(second[i], eps1 * eps1)));
  const double clip = std::max(1.0, std::sqrt(mean_square(u)) / 0.8);
  for (size_t i = 0; i < p.size(); ++i) p[i] = p[i] * (1 - rate * 0.1) - alpha / clip * u[i];
}

TEST(Adafactor, MatrixMatchesDouble) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 70}, {70, 3}, {33, 64}, {1500, 17}, {5, 1100}}) {
    const int64_t n = rows * columns;
    Array p = Array::random(DType::kF32, n, 1), row = zeros(rows), column = zeros(columns);
    std::vector<double> want = p.values(), want_row(static_cast<size_t>(rows)),
                        want_column(static_cast<size_t>(columns));
    const Arena scratch(adafactor_scratch_bytes(rows, columns) + 64);
    for (int64_t t = 1; t <= 4; ++t) {
      const Array grad = Array::random(DType::kF32, n, 10u + static_cast<unsigned>(t), 0.3);
      const UpdateScalars scalars = scalars_at(t);
      std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));
      adafactor_update(rows, columns, p.f32(), row.f32(), column.f32(), grad.f32(), &scalars, kConstants,
                       scratch.data());
      std::vector<double> g = grad.values(), second(g.size());
      for (double& value : g) value *= 0.5;
      const double share = std::pow(static_cast<double>(t), -0.8);
      std::vector<double> row_mean(want_row.size()), column_mean(want_column.size());
      for (int64_t i = 0; i < n; ++i) {
        const double square = g[static_cast<size_t>(i)] * g[static_cast<size_t>(i)];
        row_mean[static_cast<size_t>(i / columns)] += square / static_cast<double>(columns);
        column_mean[static_cast<size_t>(i % columns)] += square / static_cast<double>(rows);
      }
      double mean = 0;
      for (size_t i = 0; i < want_row.size(); ++i) {
        want_row[i] += share * (row_mean[i] - want_row[i]);
        mean += want_row[i] / static_cast<double>(rows);
      }
      for (size_t j = 0; j < want_column.size(); ++j)
        want_column[j] += share * (column_mean[j] - want_column[j]);
      for (int64_t i = 0; i < n; ++i)
        second[static_cast<size_t>(i)] = want_row[static_cast<size_t>(i / columns)] *
                                         want_column[static_cast<size_t>(i % columns)] /
                                         std::max(mean, 0x1p-23);
      step_in_double(want, g, second, static_cast<double>(t));
    }
    expect_near(p, want, 3e-6);
    expect_near(row, want_row, 1e-6, 1e-2);
    expect_near(column, want_column, 1e-6, 1e-2);
  }
}

TEST(Adafactor, VectorMatchesDouble) {
  for (const int64_t n : {1, 63, 40000}) {
    Array p = Array::random(DType::kF32, n, 1), variance = zeros(n);
    std::vector<double> want = p.values(), want_variance(static_cast<size_t>(n));
    const Arena scratch(adafactor_scratch_bytes(1, n) + 64);
    for (int64_t t = 1; t <= 4; ++t) {
      const Array grad = Array::random(DType::kF32, n, 10u + static_cast<unsigned>(t), 0.3);
      const UpdateScalars scalars = scalars_at(t);
      adafactor_vector_update(n, p.f32(), variance.f32(), grad.f32(), &scalars, kConstants, scratch.data());
      std::vector<double> g = grad.values();
      for (size_t i = 0; i < g.size(); ++i) {
        g[i] *= 0.5;
        want_variance[i] += std::pow(static_cast<double>(t), -0.8) * (g[i] * g[i] - want_variance[i]);
      }
      step_in_double(want, g, want_variance, static_cast<double>(t));
    }
    expect_near(p, want, 3e-6);
    expect_near(variance, want_variance, 1e-6, 1e-2);
  }
}

TEST(Adafactor, SameBitsForAnyNumberOfThreadsAndNothingWhenSkipped) {
  const int64_t rows = 900, columns = 70;
  const Array start = Array::random(DType::kF32, rows * columns, 1),
              grad = Array::random(DType::kF32, rows * columns, 2);
  const Arena scratch(adafactor_scratch_bytes(rows, columns));
  UpdateScalars scalars = scalars_at(3);
  const auto run = [&] {
    Array p = start, row = zeros(rows), column = zeros(columns);
    adafactor_update(rows, columns, p.f32(), row.f32(), column.f32(), grad.f32(), &scalars, kConstants,
                     scratch.data());
    auto bytes = p.bytes();
    for (const Array* state : {&row, &column})
      bytes.insert(bytes.end(), state->bytes().begin(), state->bytes().end());
    return bytes;
  };
  testing::expect_same_bits(run);
  scalars.skip = 1;
  auto untouched = start.bytes();
  untouched.resize(untouched.size() + static_cast<size_t>(rows + columns) * 4);
  EXPECT_TRUE(run() == untouched);
}

}  // namespace
}  // namespace strata::cpu
