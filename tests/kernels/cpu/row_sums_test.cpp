#include "tensor/row_sums.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

namespace strata {
namespace {

template <typename T>
void expect_sums(const std::vector<std::vector<T>>& rows, int64_t width) {
  std::vector<const T*> at;
  for (const auto& row : rows) at.push_back(row.data());
  const T poison(-12345.0f);
  std::vector<T> sums(static_cast<size_t>(width) + 3, poison);
  sum_rows(sums.data(), std::span<const T* const>(at), width);
  for (size_t i = 0; i < sums.size(); ++i) {
    float wanted = 0;
    for (const auto& row : rows) wanted += static_cast<float>(row[i]);
    if (i >= static_cast<size_t>(width)) wanted = static_cast<float>(poison);
    EXPECT_EQ(static_cast<float>(sums[i]), static_cast<float>(T(wanted))) << "column " << i;
  }
}

TEST(RowSums, AddRowsInOrder) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  for (const int64_t width : {0, 1, 7, 16, 33, 512, 517}) {
    for (const int count : {0, 1, 2, 3, 8}) {
      SCOPED_TRACE(testing::Message() << count << " rows of " << width);
      std::vector<std::vector<float>> floats(static_cast<size_t>(count));
      std::vector<std::vector<BF16>> halves(floats.size());
      std::vector<std::vector<F16>> ieee_halves(floats.size());
      for (size_t r = 0; r < floats.size(); ++r) {
        for (int64_t i = 0; i < width + 3; ++i) {
          floats[r].push_back(normal(engine));
          halves[r].emplace_back(floats[r].back());
          ieee_halves[r].emplace_back(floats[r].back());
        }
      }
      expect_sums(floats, width);
      expect_sums(halves, width);
      expect_sums(ieee_halves, width);
    }
  }
}

}  // namespace
}  // namespace strata
