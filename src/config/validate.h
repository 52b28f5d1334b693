// What validate() reports of single tables. Internal to validate*.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"

namespace strata::config {

// Collects the issues of a configuration, which must outlive it.
class Report {
 public:
  explicit Report(const RunConfig& config) : config_(config), issues_(config.reading_issues) {}

  // A key that could not be read already has an error; errors derived from its default would be confusing.
  bool unread(const std::string& key) const {
    return std::any_of(config_.reading_issues.begin(), config_.reading_issues.end(),
                       [&](const Issue& issue) { return issue.key == key; });
  }

  template <typename... Args>
  void operator()(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    if (!unread(key))
      issues_.push_back({key, config_.origin_of(key), fmt::format(format, std::forward<Args>(args)...)});
  }

  std::vector<Issue> take() { return std::move(issues_); }

 private:
  const RunConfig& config_;
  std::vector<Issue> issues_;
};

void check_recovery(const RunConfig& config, Report& report);
// [precision], and optimizer.state_dtype.
void check_precision(const RunConfig& config, Report& report);

}  // namespace strata::config
