// What a stage counted and saw, for the report: histograms of the quantities that its thresholds look at, and
// counters. One object a thread and stage; objects are added up in the end, and the sum does not depend on
// how documents were spread over them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

struct MetricSpec {
  std::string name;          // as the threshold is called: "dup_line_frac", "words", …
  double low = 0, high = 1;  // the histogram's range; values outside count in the first or last bin
  double threshold = 0;      // shown as a mark
  bool keeps_above = false;  // values above the threshold are kept
};

class StageStats {
 public:
  static constexpr int kBins = 50;

  StageStats() = default;
  explicit StageStats(std::vector<MetricSpec> metrics);

  void record(size_t metric, double value) {
    Histogram& histogram = histograms_[metric];
    ++histogram.bins[bin(metric, value)];
  }
  // Counts of anything else by name: "lines_removed", "emails", …
  void count(std::string_view name, int64_t n = 1);

  void add(const StageStats& other);  // of the same metrics

  struct Histogram {
    std::array<int64_t, kBins> bins{};
  };
  const std::vector<MetricSpec>& metrics() const { return metrics_; }
  const std::vector<Histogram>& histograms() const { return histograms_; }
  const std::map<std::string, int64_t, std::less<>>& counters() const { return counters_; }

  // A round trip for the files of finished parts.
  std::string to_json() const;
  static StageStats from_json(std::string_view json);  // DataError

 private:
  size_t bin(size_t metric, double value) const;

  std::vector<MetricSpec> metrics_;
  std::vector<Histogram> histograms_;
  std::map<std::string, int64_t, std::less<>> counters_;
};

}  // namespace strata::data
