#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "observe/chart.h"

namespace strata::observe {

std::vector<double> nice_ticks(double low, double high, int about) {
  const double rough = (high - low) / std::max(1, about);
  if (!(rough > 0) || std::isinf(rough)) return {low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double leading = rough / power;
  const double step = power * (leading < 1.5 ? 1 : leading < 3.5 ? 2 : leading < 7.5 ? 5 : 10);
  // Multiples of the step. For a range of a few ulp they exceed the integers that a double can represent, and
  // adding 1 may not change them.
  constexpr double kMostMultiple = 0x1p52;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  if (!(std::abs(first) < kMostMultiple && std::abs(last) < kMostMultiple)) return {low};
  const auto begin = static_cast<int64_t>(first), end = static_cast<int64_t>(last);
  std::vector<double> ticks;
  for (int64_t k = begin; k <= end; ++k) {
    const double tick = static_cast<double>(k) * step;
    if (ticks.empty() || tick > ticks.back()) ticks.push_back(tick);
  }
  return ticks.empty() ? std::vector<double>{low} : ticks;
}

std::vector<double> log_ticks(double low, double high, int about) {
  const double decades = std::log10(high / low);
  std::vector<double> ticks;
  if (!(low > 0) || !(decades > 0) || !std::isfinite(decades)) return {low};
  // Every `stride` powers of ten, or each of them times 1, 2 and 5.
  const auto stride = static_cast<int>(std::max(1.0, std::ceil(decades / std::max(1, about))));
  const bool dense = 3 * decades <= about + 1;
  const auto first = static_cast<int>(std::floor(std::log10(low))),
             last = static_cast<int>(std::ceil(std::log10(high)));
  for (int exponent = first; exponent <= last; ++exponent) {
    if (!dense && (exponent % stride + stride) % stride != 0) continue;
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * std::pow(10.0, exponent);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9) && (dense || digit == 1))
        ticks.push_back(tick);
    }
  }
  // Less than a factor of two: an axis of two linear steps is clearer.
  return ticks.size() >= 2 ? ticks : nice_ticks(low, high, std::min(about, 4));
}

std::string log_tick_label(double value) {
  if (value >= 1e15) {
    const double exponent = std::floor(std::log10(value) + 1e-9);
    return fmt::format("{:.3g}e{:.0f}", value / std::pow(10, exponent), exponent);
  }
  // As many digits as the number has, at most three.
  const double unit = std::pow(10, std::floor(std::log10(value) + 1e-9));
  const double digits = value / unit;
  const double steps = std::abs(digits - std::round(digits)) < 1e-6             ? 1
                       : std::abs(10 * digits - std::round(10 * digits)) < 1e-6 ? 0.1
                                                                                : 0.01;
  return tick_label(value, unit * steps);
}

std::string tick_label(double value, double step) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::abs(value);
  const auto decimals_for = [&](double unit) {
    const double decimals = std::ceil(-std::log10(step / unit) - 1e-9);
    return decimals > 0 ? static_cast<int>(std::min(decimals, 6.0)) : 0;  // also for a NaN step
  };
  // Small numbers, and larger ones on the same axis.
  if (size < 1e-3 || (step < 1e-3 && size < 1e-2)) {
    constexpr int kLeast = std::numeric_limits<double>::min_exponent10;  // smaller powers of 10 are subnormal
    const int exponent = std::max(kLeast, static_cast<int>(std::floor(std::log10(size) + 1e-9)));
    const double unit = std::pow(10, exponent);
    std::string digits = fmt::format("{:.{}f}", value / unit, decimals_for(unit));
    if (digits.find('.') != std::string::npos) {
      digits.erase(digits.find_last_not_of('0') + 1);
      if (digits.back() == '.') digits.pop_back();
    }
    return fmt::format("{}e{}", digits, exponent);
  }
  static constexpr struct {
    double unit;
    const char* suffix;
  } kUnits[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, suffix] : kUnits) {
    if (size >= unit * (unit == 1e3 ? 10 : 1))
      return fmt::format("{:.{}f}{}", value / unit, decimals_for(unit), suffix);
  }
  return fmt::format("{:.{}f}", value, decimals_for(1));
}

std::vector<double> smoothed(std::span<const double> values, size_t window) {
  // Prefix sums and counts of the finite values.
  std::vector<double> sums(values.size() + 1, 0.0);
  std::vector<size_t> counts(values.size() + 1, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool finite = std::isfinite(values[i]);
    sums[i + 1] = sums[i] + (finite ? values[i] : 0);
    counts[i + 1] = counts[i] + (finite ? 1 : 0);
  }
  std::vector<double> means(values.size(), std::numeric_limits<double>::quiet_NaN());
  const size_t reach = window / 2;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    // The window is truncated at one end only, so the last mean is not just the last value.
    const size_t begin = i - std::min(reach, i), end = std::min(i + reach + 1, values.size());
    means[i] = (sums[end] - sums[begin]) / static_cast<double>(counts[end] - counts[begin]);
  }
  return means;
}

void downsample(std::vector<double>& x, std::vector<double>& y, size_t max_points) {
  const size_t n = std::min(x.size(), y.size());
  if (n <= max_points || max_points < 4) return;
  // Each bucket yields its lowest and highest point, or a gap if it has none.
  const size_t buckets = max_points / 2;
  std::vector<double> new_x, new_y;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const size_t begin = bucket * n / buckets, end = (bucket + 1) * n / buckets;
    size_t low = end, high = end;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(y[i])) continue;
      if (low == end || y[i] < y[low]) low = i;
      if (high == end || y[i] > y[high]) high = i;
    }
    if (low == end) {
      new_x.push_back(x[begin]);
      new_y.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const auto [first, second] = std::minmax(low, high);
    new_x.push_back(x[first]);
    new_y.push_back(y[first]);
    if (second != first) {
      new_x.push_back(x[second]);
      new_y.push_back(y[second]);
    }
  }
  x = std::move(new_x);
  y = std::move(new_y);
}

}  // namespace strata::observe
