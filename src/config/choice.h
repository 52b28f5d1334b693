// A choice made for the user: one configuration value, the value it replaces and the reason.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace strata::config {

struct Choice {
  std::string key;        // "training.micro_batch_size"
  std::string value;      // TOML
  std::string why;        // for people: "the largest that memory.budget holds"
  std::string from = {};  // replaced value as TOML: "auto", "training", -1; set by Choices::take
};
Choice chosen(std::string key, int64_t value, std::string why);
Choice chosen(std::string key, double value, std::string why);
Choice chosen(std::string key, std::string_view value, std::string why);
Choice chosen(std::string key, const std::vector<std::string>& value, std::string why);

// Returns the configuration with these values. Their keys do not become user-given. Throws ConfigError if a
// key does not accept its value.
RunConfig with(const RunConfig& config, std::span<const Choice> choices);

// A configuration being resolved: starts as requested and ends as run.
class Choices {
 public:
  explicit Choices(const RunConfig& asked) : config_(asked) {}
  const RunConfig& config() const { return config_; }
  const std::vector<Choice>& all() const { return all_; }  // one per key, in order
  void take(std::vector<Choice> made);
  // Adds the choices stored with a run that is resumed.
  void keep(const RunConfig& kept);

 private:
  RunConfig config_;
  std::vector<Choice> all_;
};

}  // namespace strata::config
