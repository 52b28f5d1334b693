// Matmuls in fp64, shared by linear layers and the head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "tensor/dtype.h"

namespace strata::reference {

// Four independent sums, so that additions do not wait for each other.
inline double dot(const double* a, const double* b, int64_t n) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Calls emit(i, j, Σ_k a(i, k) · b(j, k)) for all i < m, j < n. Blocks of rows are converted to fp64 once:
// reading each element would take most of the time.
template <typename A, typename B, typename Emit>
void products(int64_t m, int64_t n, int64_t k, const A& a, const B& b, const Emit& emit) {
  constexpr int64_t kBlock = 64;
  const int64_t columns = (n + kBlock - 1) / kBlock;
  parallel_for((m + kBlock - 1) / kBlock * columns, [&](int64_t task) {
    const int64_t i0 = task / columns * kBlock, i1 = std::min(m, i0 + kBlock);
    const int64_t j0 = task % columns * kBlock, j1 = std::min(n, j0 + kBlock);
    const auto read = [k](int64_t begin, int64_t end, const auto& from) {
      std::vector<double> block;
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t x = 0; x < k; ++x) block.push_back(from(r, x));
      }
      return block;
    };
    const std::vector<double> left = read(i0, i1, a), right = read(j0, j1, b);
    for (int64_t i = i0; i < i1; ++i) {
      for (int64_t j = j0; j < j1; ++j)
        emit(i, j, dot(left.data() + (i - i0) * k, right.data() + (j - j0) * k, k));
    }
  });
}

// Rounds a weight to the precision in which it meets activations of this dtype.
inline double rounded(double value, DType dtype) {
  if (dtype == DType::kBF16) return static_cast<double>(static_cast<float>(BF16(static_cast<float>(value))));
  if (dtype == DType::kF16) return static_cast<double>(static_cast<float>(F16(static_cast<float>(value))));
  return value;
}

}  // namespace strata::reference
