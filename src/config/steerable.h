// Settings that may change while a run is running: what `strata set` takes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace strata::config {

// One KEY=VALUE of a request.
struct NewSetting {
  std::string key;    // "optimizer.lr"
  std::string value;  // TOML
  bool operator==(const NewSetting&) const = default;
};

// Parses KEY=VALUE as --set does. ConfigError for one that is malformed, or whose key cannot change during a
// run; the message lists what can.
std::vector<NewSetting> parse_new_settings(std::span<const std::string> assignments);
// ConfigError if the key cannot change while a run is running.
void require_steerable(std::string_view key);

// `config`, the resolved configuration of a run, with these settings. ConfigError, with every error, for a
// key that cannot change or a value that is not valid.
RunConfig with_settings(const RunConfig& config, std::span<const NewSetting> settings);

// `asked` for a resume of a run that was steered: the keys in `steered` have the values that the run was
// started with, `stored`, so that a comparison ignores them and the run's journal applies their changes again
// at their steps.
RunConfig keep_steered(const RunConfig& asked, const RunConfig& stored, std::span<const std::string> steered);

// The keys that can change, each once: "log.interval_steps", ….
std::vector<std::string> steerable_keys();

}  // namespace strata::config
