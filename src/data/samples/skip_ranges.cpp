#include "data/samples/skip_ranges.h"

#include <algorithm>

#include "base/error.h"

namespace strata::data {

SkipRanges::SkipRanges(std::vector<SampleRange> ranges) {
  for (const SampleRange& range : ranges) {
    if (range.begin < 0 || range.end < range.begin) {
      throw ConfigError(
          "[data.skip] has the range {} to {}; expected a first sample of at least 0 and an end (not "
          "included) that is not before it",
          range.begin, range.end);
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.begin < b.begin; });
  int64_t skipped = 0;
  for (const SampleRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (!ranges_.empty() && range.begin <= ranges_.back().end) {
      if (range.end > ranges_.back().end) {
        skipped += range.end - ranges_.back().end;
        ranges_.back().end = range.end;
      }
      continue;
    }
    skipped_before_.push_back(skipped);
    ranges_.push_back(range);
    skipped += range.end - range.begin;
  }
}

int64_t SkipRanges::global_of(int64_t trained) const {
  // The first range that starts, with all before it taken out, after this sample.
  size_t low = 0, high = ranges_.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (ranges_[middle].begin - skipped_before_[middle] > trained)
      high = middle;
    else
      low = middle + 1;
  }
  if (low == 0) return trained;
  const SampleRange& last = ranges_[low - 1];
  return trained + skipped_before_[low - 1] + last.end - last.begin;
}

int64_t SkipRanges::trained_before(int64_t global) const {
  int64_t skipped = 0;
  for (const SampleRange& range : ranges_) {
    if (range.begin >= global) break;
    skipped += std::min(range.end, global) - range.begin;
  }
  return global - skipped;
}

}  // namespace strata::data
