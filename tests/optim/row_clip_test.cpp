#include "optim/row_clip/row_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace strata::optim {
namespace {

double squares_of(const std::vector<double>& row) {
  double sum = 0;
  for (const double x : row) sum += x * x;
  return sum;
}

// tools/golden/make_row_clip_golden.py; the tests of ops compute the same with ClipRows.
TEST(RowFactor, LimitsRowsAsOptax) {
  const auto cases = parse_json<nlohmann::json>(read_file(STRATA_TEST_DATA "/optim/row_clip.json"));
  int64_t limited = 0, rows = 0;
  for (const auto& one : cases) {
    const auto weights = one.at("weights").get<std::vector<std::vector<double>>>();
    const auto gradient = one.at("gradient").get<std::vector<std::vector<double>>>();
    const auto clipped = one.at("clipped").get<std::vector<std::vector<double>>>();
    for (size_t row = 0; row < weights.size(); ++row, ++rows) {
      // The gradient in memory is a sum over 8 tokens.
      const double factor =
          row_factor(one.at("limit"), 64 * squares_of(gradient[row]), squares_of(weights[row]), 0.125);
      if (factor < 1) ++limited;
      for (size_t i = 0; i < gradient[row].size(); ++i)
        EXPECT_NEAR(gradient[row][i] * factor, clipped[row][i], 1e-6 * std::abs(clipped[row][i])) << row;
    }
  }
  EXPECT_GT(limited, 3);
  EXPECT_LT(limited, rows - 3);
}

}  // namespace
}  // namespace strata::optim
