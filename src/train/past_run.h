// Opens a run by what its folder records, without changing it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/plan.h"

namespace strata::training {

// The configuration with which the run was last started, changed by `sets`. Nothing in it is left to be
// chosen. ConfigError, naming the verb, for a folder without a run.
config::RunConfig config_of_run(const Path& run, const std::string& verb,
                                std::span<const std::string> sets = {});

// Its tokenizer, tokens and programs: those of these places on the pipeline axis.
std::shared_ptr<const config::RunPlan> plan_of_run(FileSystem& files, const Path& run,
                                                   const config::RunConfig& config,
                                                   std::vector<int32_t> places);

}  // namespace strata::training
