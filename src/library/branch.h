// Starts a new run from a checkpoint of another one, with other settings: strata branch.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace strata::library {

struct Branch {
  Path checkpoint;  // in the new run's folder
  int64_t step = 0;
  bool linked = false;                  // its files are hard links, which need no space
  std::vector<config::Change> changes;  // to the configuration of the old run
  std::string command;                  // that trains it
};

// `source`: RUN@STEP, RUN@latest or RUN@best. Makes the folder `target` with run.toml, one checkpoint and
// metrics.jsonl. ConfigError if it exists, if there is no such checkpoint, or if a resume would refuse the
// settings; DataError if the checkpoint is damaged. An error leaves nothing.
Branch make_branch(const std::string& source, const Path& target, const std::vector<std::string>& sets);

}  // namespace strata::library
