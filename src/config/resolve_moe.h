// [moe] of a run. Internal to resolve_model.cpp.
#pragma once

#include <vector>

#include "config/config.h"
#include "models/model.h"

namespace strata::config {

// The experts of a run's model.
void apply_moe(const RunConfig& config, models::Experts& experts);
// Rejects routers that a family cannot have, settings that the router or a model without experts does not
// use, and leaking routing that is not allowed.
void check_moe(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues);

}  // namespace strata::config
