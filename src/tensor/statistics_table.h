// Statistics of a value, as every device's kernels have them in memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace strata {

// The numbers of a table, in this order. NaN and infinities count in `nonfinite` and `elements` only.
struct StatisticsTable {
  double sum = 0, squares = 0;
  double greatest = 0;     // magnitude
  double row_squares = 0;  // the greatest sum of squares of a row, if the statistic is of rows
  double nonfinite = 0;    // elements that are NaN or infinite
  double zeros = 0;        // elements that are 0
  double saturated = 0;    // whose magnitude is at least a limit
  double flushed = 0;      // not 0, and below the smallest normal number
  double elements = 0;
};
inline constexpr int64_t kStatisticsNumbers = sizeof(StatisticsTable) / sizeof(double);

// To add: maxima are the greater one of both.
inline void add_statistics(StatisticsTable& to, const StatisticsTable& more) {
  to.sum += more.sum;
  to.squares += more.squares;
  to.greatest = std::max(to.greatest, more.greatest);
  to.row_squares = std::max(to.row_squares, more.row_squares);
  to.nonfinite += more.nonfinite;
  to.zeros += more.zeros;
  to.saturated += more.saturated;
  to.flushed += more.flushed;
  to.elements += more.elements;
}

}  // namespace strata
