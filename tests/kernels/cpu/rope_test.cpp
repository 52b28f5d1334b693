#include "kernels/cpu/rope.h"

#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;

constexpr int64_t kPositions = 40;

std::vector<int32_t> some_positions(int64_t rows) {
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < rows; ++row) positions.push_back(static_cast<int32_t>(row * 7 % kPositions));
  return positions;
}

Array table_of(int64_t rotary_dim) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    frequencies.push_back(std::pow(10000, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  Array table(DType::kF32, kPositions * rotary_dim);
  fill_rope_table(table.f32(), kPositions, frequencies);
  return table;
}

TEST(Rope, RotatesHalfLayoutPairs) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t rows : testing::kRaggedRows) {
      for (const auto& [head_dim, rotary] :
           {std::pair<int64_t, int64_t>{2, 2}, {20, 20}, {64, 64}, {80, 34}}) {
        const int64_t heads = 3, stride = heads * head_dim + 5;
        const RopeShape shape{rows, heads, head_dim, rotary, stride, dtype};
        const Array in = Array::random(dtype, rows * stride, 1), table = table_of(rotary);
        const auto positions = some_positions(rows);
        Array out = in;  // elements between the rows must not change
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < heads * head_dim; ++i) out.set(row * stride + i, NAN);
        }
        rope(shape, out.data(), in.data(), table.f32(), positions.data(), false);
        std::vector<double> want = in.values();
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t head = 0; head < heads; ++head) {
            for (int64_t i = 0; i < rotary / 2; ++i) {
              const int64_t a = row * stride + head * head_dim + i, b = a + rotary / 2;
              const double angle =
                  positions[static_cast<size_t>(row)] *
                  std::pow(10000, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
              want[static_cast<size_t>(a)] = in[a] * std::cos(angle) - in[b] * std::sin(angle);
              want[static_cast<size_t>(b)] = in[b] * std::cos(angle) + in[a] * std::sin(angle);
            }
          }
        }
        expect_near(out, want, 1e-6);
        Array in_place = in;
        rope(shape, in_place.data(), in_place.data(), table.f32(), positions.data(), false);
        EXPECT_TRUE(in_place.bytes() == out.bytes());
      }
    }
  }
}

// A rotation is linear and orthogonal: its transpose, the gradient, is the inverse.
TEST(Rope, InverseIsGradientAndUndoes) {
  const RopeShape shape{9, 2, 64, 64, 128, DType::kF32};
  const Array x = Array::random(DType::kF32, 9 * 128, 1), dy = Array::random(DType::kF32, 9 * 128, 2);
  const Array table = table_of(64);
  const auto positions = some_positions(9);
  Array y(DType::kF32, x.size()), back(DType::kF32, x.size()), dx(DType::kF32, x.size());
  rope(shape, y.data(), x.data(), table.f32(), positions.data(), false);
  rope(shape, back.data(), y.data(), table.f32(), positions.data(), true);
  expect_near(back, x.values(), 1e-6);
  rope(shape, dx.data(), dy.data(), table.f32(), positions.data(), true);
  double left = 0, right = 0;
  for (int64_t i = 0; i < x.size(); ++i) left += dy[i] * y[i], right += dx[i] * x[i];
  EXPECT_NEAR(left, right, 1e-4);
}

TEST(Rope, SameBitsForAnyNumberOfThreads) {
  const RopeShape shape{257, 4, 64, 64, 256, DType::kBF16};
  const Array x = Array::random(DType::kBF16, 257 * 256, 1), table = table_of(64);
  const auto positions = some_positions(257);
  expect_same_bits([&] {
    Array y(DType::kBF16, x.size());
    rope(shape, y.data(), x.data(), table.f32(), positions.data(), false);
    return y.bytes();
  });
}

}  // namespace
}  // namespace strata::cpu
