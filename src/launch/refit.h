// A layout for fewer ranks than a configuration was written for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace strata::launch {

// The settings of [parallel], as for --set, with which a valid configuration runs on `ranks` ranks: the fewest changed
// keys; among these, replicas and shards change before the degrees that split layers, and values stay near the old ones.
// Empty: no change is needed. nullopt: there is no such layout.
std::optional<std::vector<std::string>> refit(const config::RunConfig& config, int64_t ranks);

}  // namespace strata::launch
