// What was chosen for the user: one value of the configuration, from what and why.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace strata::config {

struct Choice {
  std::string key;        // "training.micro_batch_size"
  std::string value;      // TOML
  std::string why;        // some words for people: "the largest that memory.budget holds"
  std::string from = {};  // TOML of what stood there: "auto", "training", -1; laid down by Choices::take
};
Choice chosen(std::string key, int64_t value, std::string why);
Choice chosen(std::string key, double value, std::string why);
Choice chosen(std::string key, std::string_view value, std::string why);
Choice chosen(std::string key, const std::vector<std::string>& value, std::string why);

// The configuration with these values in place of what stood there. No key counts as given by it. ConfigError
// for a value that its key does not take.
RunConfig with(const RunConfig& config, std::span<const Choice> choices);

// A configuration on its way from what was asked for to what is run.
class Choices {
 public:
  explicit Choices(const RunConfig& asked) : config_(asked) {}
  const RunConfig& config() const { return config_; }
  const std::vector<Choice>& all() const { return all_; }  // one a key, in the order in which they were made
  void take(std::vector<Choice> made);
  // All that a run which goes on has chosen before.
  void keep(const RunConfig& kept);

 private:
  RunConfig config_;
  std::vector<Choice> all_;
};

}  // namespace strata::config
