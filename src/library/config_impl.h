// The implementation of Config.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "strata/config.h"

namespace strata {

struct Config::Impl {
  using Read = std::function<config::RunConfig(const std::vector<std::string>& sets)>;
  config::RunConfig config;  // as read, and valid
  Read read;                 // reads it again, for with()
  std::vector<std::string> sets;
};

}  // namespace strata
