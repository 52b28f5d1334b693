// Robust statistics of a metric over the steps of a run. Values that are NaN are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/median.h"

namespace strata::diagnosis {

std::vector<double> finite_values(std::span<const double> values);
double quantile_of(std::vector<double> values, double fraction);  // 0 to 1; NaN for none
// 1.4826 times the median distance from the median: the standard deviation of normal values, insensitive to
// outliers.
double spread_of(const std::vector<double>& values);
// Standard deviation of the noise around a slowly changing level, from the differences of neighbours.
double noise_of(const std::vector<double>& values);

// A metric with its steps.
class Series {
 public:
  Series() = default;
  // Keeps the finite values; `values` is empty or as long as `steps`.
  Series(std::span<const int64_t> steps, std::span<const double> values);

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const std::vector<int64_t>& steps() const { return steps_; }
  const std::vector<double>& values() const { return values_; }
  double median() const { return median_of(values_); }
  double sum() const;
  double max() const;

  Series last(size_t count) const;                    // of values
  Series between(int64_t after, int64_t last) const;  // after < step ≤ last

 private:
  std::vector<int64_t> steps_;
  std::vector<double> values_;
};

// The medians of consecutive windows of `width` values, the last of which ends with the last value.
struct WindowLevel {
  int64_t first_step = 0, last_step = 0;
  double median = 0;
};
std::vector<WindowLevel> levels_of(const Series& series, size_t width);
// Windows for trends: a tenth of the values, at least 20 so that their median is stable, at most 500.
size_t window_of(size_t values);
// The step since which a series is above a limit: the trailing levels are, and from that step on the first values are
// too. Nothing if the last level is not.
std::optional<int64_t> above_since(const Series& series, std::span<const WindowLevel> levels, double limit);

// A short excursion upwards.
struct Spike {
  int64_t first_step = 0, last_step = 0;
  double value = 0;  // the greatest
  double usual = 0;  // the median before
};
// Values more than 8 spreads above the median of the 128 before them, as recovery's robust_z has it, with at
// least 32 of them; the spread counts as at least `least_share` of the median. Neighbours are one spike. What
// stays high for more than 20 values is a new level, not a spike, and is left out.
std::vector<Spike> spikes_of(const Series& series, double least_share);

}  // namespace strata::diagnosis
