#include "diagnosis/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace strata::diagnosis {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
constexpr double kNormal = 1.4826;  // standard deviation of normal values over their median deviation

constexpr size_t kSpikeWindow = 128, kLeastBeforeSpike = 32, kLongestSpike = 20;
constexpr double kSpikeSpreads = 8;

}  // namespace

std::vector<double> finite_values(std::span<const double> values) {
  std::vector<double> out;
  std::copy_if(values.begin(), values.end(), std::back_inserter(out),
               [](double value) { return std::isfinite(value); });
  return out;
}

double quantile_of(std::vector<double> values, double fraction) {
  if (values.empty()) return kNoValue;
  const auto place =
      static_cast<std::ptrdiff_t>(std::lround(fraction * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<size_t>(place)];
}

double spread_of(const std::vector<double>& values) {
  const double median = median_of(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - median));
  return kNormal * median_of(std::move(distances));
}

double noise_of(const std::vector<double>& values) {
  std::vector<double> distances;
  for (size_t i = 1; i < values.size(); ++i) distances.push_back(std::abs(values[i] - values[i - 1]));
  return kNormal * median_of(std::move(distances)) / std::sqrt(2.0);
}

Series::Series(std::span<const int64_t> steps, std::span<const double> values) {
  for (size_t i = 0; i < std::min(steps.size(), values.size()); ++i) {
    if (!std::isfinite(values[i])) continue;
    steps_.push_back(steps[i]);
    values_.push_back(values[i]);
  }
}

double Series::sum() const {
  return std::accumulate(values_.begin(), values_.end(), 0.0);
}

double Series::max() const {
  return empty() ? kNoValue : *std::max_element(values_.begin(), values_.end());
}

Series Series::last(size_t count) const {
  const size_t begin = size() - std::min(count, size());
  return {std::span(steps_).subspan(begin), std::span(values_).subspan(begin)};
}

Series Series::between(int64_t after, int64_t last) const {
  const auto begin = std::upper_bound(steps_.begin(), steps_.end(), after);
  const auto end = std::upper_bound(begin, steps_.end(), std::max(after, last));
  const auto offset = static_cast<size_t>(begin - steps_.begin()), count = static_cast<size_t>(end - begin);
  return {std::span(steps_).subspan(offset, count), std::span(values_).subspan(offset, count)};
}

size_t window_of(size_t values) {
  return std::clamp<size_t>(values / 10, 20, 500);
}

std::vector<WindowLevel> levels_of(const Series& series, size_t width) {
  std::vector<WindowLevel> levels;
  for (size_t begin = series.size() % width; begin + width <= series.size(); begin += width) {
    const std::span<const double> values = std::span(series.values()).subspan(begin, width);
    levels.push_back({series.steps()[begin], series.steps()[begin + width - 1],
                      median_of({values.begin(), values.end()})});
  }
  return levels;
}

std::optional<int64_t> above_since(const Series& series, std::span<const WindowLevel> levels, double limit) {
  constexpr std::ptrdiff_t kShort = 11;  // values whose median shows the change within a level
  std::optional<int64_t> since;
  for (auto it = levels.rbegin(); it != levels.rend() && it->median > limit; ++it) since = it->first_step;
  if (!since) return since;
  const Series from = series.between(*since - 1, levels.back().last_step);
  for (auto it = from.values().begin(); from.values().end() - it >= kShort; ++it) {
    if (*it > limit && median_of({it, it + kShort}) > limit)
      return from.steps()[static_cast<size_t>(it - from.values().begin())];
  }
  return since;
}

std::vector<Spike> spikes_of(const Series& series, double least_share) {
  const std::vector<double>& values = series.values();
  std::vector<Spike> spikes;
  size_t length = 0;  // of the spike that value i - 1 belongs to
  for (size_t i = kLeastBeforeSpike; i < values.size(); ++i) {
    const size_t begin = i - std::min(i, kSpikeWindow);
    // Within a spike, its own values do not count as usual.
    const size_t end = length > 0 && length <= kLongestSpike ? i - length : i;
    const std::vector<double> before(
        values.begin() + static_cast<std::ptrdiff_t>(std::min(begin, end - kLeastBeforeSpike)),
        values.begin() + static_cast<std::ptrdiff_t>(end));
    const double usual = median_of(before), least = least_share * std::abs(usual);
    // The spread costs more than the median and is rarely needed.
    if (!(values[i] > usual + kSpikeSpreads * least) ||
        !(values[i] > usual + kSpikeSpreads * std::max(spread_of(before), least))) {
      length = 0;
      continue;
    }
    if (length++ == 0) spikes.push_back({series.steps()[i], series.steps()[i], values[i], usual});
    Spike& spike = spikes.back();
    spike.last_step = series.steps()[i];
    spike.value = std::max(spike.value, values[i]);
    if (length > kLongestSpike) {
      spikes.pop_back();
      // The new level is usual once it fills the window.
      length = 0;
      i += kSpikeWindow;
    }
  }
  return spikes;
}

}  // namespace strata::diagnosis
