#include "data/pipeline/stage_stats.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace strata::data {

StageStats::StageStats(std::vector<MetricSpec> metrics)
    : metrics_(std::move(metrics)), histograms_(metrics_.size()) {
  for (const MetricSpec& metric : metrics_)
    STRATA_CHECK(metric.high > metric.low, "metric {} has no range", metric.name);
}

size_t StageStats::bin(size_t metric, double value) const {
  const MetricSpec& spec = metrics_[metric];
  const double place = (value - spec.low) / (spec.high - spec.low) * kBins;
  // Also where the value is not a number.
  if (!(place > 0)) return 0;
  return std::min<size_t>(static_cast<size_t>(std::min(place, double{kBins})), kBins - 1);
}

void StageStats::count(std::string_view name, int64_t n) {
  const auto found = counters_.find(name);
  if (found == counters_.end()) {
    counters_.emplace(name, n);
  } else {
    found->second += n;
  }
}

void StageStats::add(const StageStats& other) {
  if (metrics_.empty()) {
    metrics_ = other.metrics_;
    histograms_.resize(metrics_.size());
  }
  STRATA_CHECK(other.metrics_.size() == metrics_.size() || other.metrics_.empty(), "other metrics: {}, {}",
               other.metrics_.size(), metrics_.size());
  for (size_t m = 0; m < other.histograms_.size(); ++m)
    for (size_t b = 0; b < kBins; ++b) histograms_[m].bins[b] += other.histograms_[m].bins[b];
  for (const auto& [name, n] : other.counters_) count(name, n);
}

std::string StageStats::to_json() const {
  nlohmann::ordered_json out;
  out["metrics"] = nlohmann::ordered_json::array();
  for (size_t m = 0; m < metrics_.size(); ++m) {
    const MetricSpec& spec = metrics_[m];
    out["metrics"].push_back({{"name", spec.name},
                              {"low", spec.low},
                              {"high", spec.high},
                              {"threshold", spec.threshold},
                              {"keeps_above", spec.keeps_above},
                              {"bins", histograms_[m].bins}});
  }
  out["counters"] = counters_;
  return dump_json(out);
}

StageStats StageStats::from_json(std::string_view json) {
  try {
    const auto in = parse_json<nlohmann::json>(json);
    std::vector<MetricSpec> metrics;
    for (const auto& metric : in.at("metrics")) {
      metrics.push_back({metric.at("name").get<std::string>(), metric.at("low").get<double>(),
                         metric.at("high").get<double>(), metric.at("threshold").get<double>(),
                         metric.at("keeps_above").get<bool>()});
    }
    StageStats out(std::move(metrics));
    for (size_t m = 0; m < out.histograms_.size(); ++m)
      out.histograms_[m].bins = in.at("metrics").at(m).at("bins").get<std::array<int64_t, kBins>>();
    for (const auto& [name, n] : in.at("counters").items()) out.counters_.emplace(name, n.get<int64_t>());
    return out;
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        "[stage statistics] found {}, expected what a build wrote; remove the build's work folder",
        error.what());
  }
}

}  // namespace strata::data
