#include "kernels/cpu/elementwise.h"

#include "base/error.h"
#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::scratch_of;

const std::vector<int64_t> kLengths = {0, 1, 7, 63, 511, 70001};

TEST(Elementwise, AddScaleAndCastRoundOnce) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t n : kLengths) {
      const Array a = Array::random(dtype, n, 1), b = Array::random(dtype, n, 2);
      Array sum(dtype, n), scaled(dtype, n), want_sum(dtype, n), want_scaled(dtype, n);
      for (int64_t i = 0; i < n; ++i) {
        want_sum.set(i, static_cast<float>(a[i]) + static_cast<float>(b[i]));
        want_scaled.set(i, static_cast<float>(a[i]) * -0.3f);
      }
      add(sum.data(), a.data(), b.data(), n, dtype);
      scale(scaled.data(), a.data(), -0.3f, n, dtype);
      EXPECT_TRUE(sum.bytes() == want_sum.bytes());
      EXPECT_TRUE(scaled.bytes() == want_scaled.bytes());
      Array in_place = a;
      add(in_place.data(), in_place.data(), b.data(), n, dtype);
      EXPECT_TRUE(in_place.bytes() == sum.bytes());
      for (const DType to : testing::kActivationTypes) {
        Array out(to, n), want(to, n);
        for (int64_t i = 0; i < n; ++i) want.set(i, a[i]);
        cast(out.data(), to, a.data(), dtype, n);
        EXPECT_TRUE(out.bytes() == want.bytes());
      }
    }
  }
}

TEST(Elementwise, AddsOneRowToAll) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t columns : {1, 7, 63, 600}) {
      const int64_t rows = 41;
      const Array x = Array::random(dtype, rows * columns, 1), row = Array::random(DType::kF32, columns, 2);
      Array sum(dtype, rows * columns), want(dtype, rows * columns);
      for (int64_t i = 0; i < rows * columns; ++i)
        want.set(i, static_cast<float>(x[i]) + static_cast<float>(row[i % columns]));
      add_row(sum.data(), x.data(), static_cast<const float*>(row.data()), rows, columns, dtype);
      EXPECT_TRUE(sum.bytes() == want.bytes());
      Array in_place = x;
      add_row(in_place.data(), in_place.data(), static_cast<const float*>(row.data()), rows, columns, dtype);
      EXPECT_TRUE(in_place.bytes() == want.bytes());
    }
  }
}

TEST(Elementwise, CastKeepsSpecialValues) {
  const float values[] = {0.0f,
                          -0.0f,
                          INFINITY,
                          -INFINITY,
                          3.3895314e38f /* rounds up to infinity */,
                          1.00390625f,
                          1.01171875f /* ties to even: down and up */,
                          -1.5f,
                          65504.0f};
  constexpr int64_t kCount = std::size(values);
  BF16 narrow[kCount];
  cast(narrow, DType::kBF16, values, DType::kF32, kCount);
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(narrow[i].bits, BF16(values[i]).bits) << values[i];
  const uint32_t nan_bits[] = {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0x7fc00000u};
  float nans[4];
  std::memcpy(nans, nan_bits, sizeof nans);
  cast(narrow, DType::kBF16, nans, DType::kF32, 4);
  for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(static_cast<float>(narrow[i]))) << i;
}

TEST(Elementwise, FillZeroCoversEveryByte) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1} << 18, (int64_t{1} << 19) + 3}) {
    std::vector<unsigned char> bytes(static_cast<size_t>(n) + 1, 0xff);
    fill_zero(bytes.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(bytes[static_cast<size_t>(i)], 0);
    EXPECT_EQ(bytes.back(), 0xff);
  }
}

TEST(Elementwise, ColumnSumsMatchDouble) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t rows : {0, 1, 31, 257, 20000}) {
      for (const int64_t columns : {1, 20, 63, 511}) {
        if (rows * columns > 2000000) continue;
        const int64_t stride = columns + 3;
        const Array in = Array::random(dtype, rows * stride, 1);
        Array out(DType::kF32, columns), scratch = scratch_of(column_sums_scratch_bytes(rows, columns));
        std::vector<double> want(static_cast<size_t>(columns));
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t c = 0; c < columns; ++c) want[static_cast<size_t>(c)] += in[row * stride + c];
        }
        column_sums(rows, columns, stride, out.f32(), in.data(), dtype, false, scratch.data());
        expect_near(out, want, 4e-6, 200);
        column_sums(rows, columns, stride, out.f32(), in.data(), dtype, true, scratch.data());
        for (double& w : want) w *= 2;
        expect_near(out, want, 4e-6, 200);
      }
    }
  }
}

TEST(Elementwise, ColumnSumsHaveTheSameBitsForAnyNumberOfThreads) {
  const Array in = Array::random(DType::kF32, 5000 * 63, 1);
  expect_same_bits([&] {
    Array out(DType::kF32, 63), scratch = scratch_of(column_sums_scratch_bytes(5000, 63));
    column_sums(5000, 63, 63, out.f32(), in.data(), DType::kF32, false, scratch.data());
    return out.bytes();
  });
}

TEST(Elementwise, RejectsOtherDtypes) {
  int32_t word = 0;
  EXPECT_THROW(add(&word, &word, &word, 1, DType::kI32), InternalError);
  EXPECT_THROW(cast(&word, DType::kF32, &word, DType::kF64, 1), InternalError);
}

}  // namespace
}  // namespace strata::cpu
