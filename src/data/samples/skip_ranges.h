// Ranges of global samples that are never trained on, taken out of the order of samples.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::data {

struct SampleRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

class SkipRanges {
 public:
  SkipRanges() = default;
  // In any order, overlapping or not. ConfigError for a range that ends before it begins.
  explicit SkipRanges(std::vector<SampleRange> ranges);

  // The global sample that is trained on as the n-th, counted from 0.
  int64_t global_of(int64_t trained) const;
  // How many of the global samples [0, global) are trained on.
  int64_t trained_before(int64_t global) const;

 private:
  std::vector<SampleRange> ranges_;      // sorted, apart from each other
  std::vector<int64_t> skipped_before_;  // in the ranges before each
};

}  // namespace strata::data
