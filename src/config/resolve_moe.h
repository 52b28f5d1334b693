// [moe] of a run, beside the rest of what a model is resolved to. Internal to resolve_model.cpp.
#pragma once

#include <vector>

#include "config/config.h"
#include "models/model.h"

namespace strata::config {

// The experts of a run's model.
void apply_moe(const RunConfig& config, models::Experts& experts);
// Routers that a family cannot have, settings that a router or a model without experts has no use for, and
// routing that leaks without leave.
void check_moe(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults);

}  // namespace strata::config
