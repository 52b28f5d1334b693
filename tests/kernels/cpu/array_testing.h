// Typed arrays for kernel tests: random or filled with NaN, f32, bf16 or fp16, read as double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/parallel.h"
#include "tensor/dtype.h"

namespace strata::cpu::testing {

// Starts filled with NaN (all bits set).
class Array {
 public:
  Array(DType dtype, int64_t n)
      : dtype_(dtype), n_(n), bytes_(static_cast<size_t>(n * size_of(dtype)), std::byte{0xff}) {}
  static Array random(DType dtype, int64_t n, unsigned seed, double spread = 1, double center = 0) {
    Array a(dtype, n);
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(center, spread);
    for (int64_t i = 0; i < n; ++i) a.set(i, normal(engine));
    return a;
  }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  float* f32() { return reinterpret_cast<float*>(bytes_.data()); }
  const float* f32() const { return reinterpret_cast<const float*>(bytes_.data()); }
  int64_t size() const { return n_; }
  DType dtype() const { return dtype_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  double operator[](int64_t i) const {
    if (dtype_ == DType::kF32) return f32()[i];
    if (dtype_ == DType::kF16) return static_cast<float>(reinterpret_cast<const F16*>(bytes_.data())[i]);
    return static_cast<float>(reinterpret_cast<const BF16*>(bytes_.data())[i]);
  }
  void set(int64_t i, double value) {
    if (dtype_ == DType::kF32) {
      f32()[i] = static_cast<float>(value);
    } else if (dtype_ == DType::kF16) {
      reinterpret_cast<F16*>(bytes_.data())[i] = F16(static_cast<float>(value));
    } else {
      reinterpret_cast<BF16*>(bytes_.data())[i] = BF16(static_cast<float>(value));
    }
  }
  std::vector<double> values() const {
    std::vector<double> all(static_cast<size_t>(n_));
    for (int64_t i = 0; i < n_; ++i) all[static_cast<size_t>(i)] = (*this)[i];
    return all;
  }

 private:
  DType dtype_;
  int64_t n_;
  std::vector<std::byte> bytes_;
};

inline Array scratch_of(int64_t bytes) {
  return Array(DType::kF32, (bytes + 3) / 4);
}

// Checks that every value of `got` is within relative * max(|want|, floor) of `want`; bf16 and fp16 arrays
// get an extra half unit in the last place.
inline void expect_near(const Array& got, const std::vector<double>& want, double relative,
                        double floor = 1) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  const bool is_f16 = got.dtype() == DType::kF16;
  const double rounding = got.dtype() == DType::kBF16 ? 0.00391 : is_f16 ? 0.000489 : 0;
  const double least = is_f16 ? 0x1p-25 : 0;  // half the distance of its smallest values
  for (int64_t i = 0; i < got.size(); ++i) {
    const double expected = want[static_cast<size_t>(i)];
    const double tolerance =
        relative * std::max(std::abs(expected), floor) + rounding * std::abs(expected) + least;
    ASSERT_LE(std::abs(got[i] - expected), tolerance)
        << "element " << i << ": " << got[i] << ", not " << expected;
  }
}

// Checks that run() produces the same bytes on 1, 2 and 3 threads.
inline void expect_same_bits(const std::function<std::vector<std::byte>()>& run) {
  const int before = compute_threads();
  flush_denormals();
  set_compute_threads(1);
  const auto one = run();
  for (const int threads : {2, 3}) {
    set_compute_threads(threads);
    EXPECT_TRUE(run() == one) << threads << " threads";
  }
  set_compute_threads(before);
}

// d loss(x) / dx[i] for each i, by central differences in double.
inline std::vector<double> numeric_gradient(std::vector<double> x,
                                            const std::function<double(const std::vector<double>&)>& loss) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i], step = 1e-5 * std::max(1.0, std::abs(kept));
    x[i] = kept + step;
    const double above = loss(x);
    x[i] = kept - step;
    gradient[i] = (above - loss(x)) / (2 * step);
    x[i] = kept;
  }
  return gradient;
}

inline const std::vector<int64_t> kRaggedDims = {1, 20, 63, 511, 4096};
inline const std::vector<int64_t> kRaggedRows = {0, 1, 257};
inline const std::vector<DType> kActivationTypes = {DType::kF32, DType::kBF16, DType::kF16};

}  // namespace strata::cpu::testing
