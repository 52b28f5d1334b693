// [optimizer] of a run, against the model. Internal to resolve_model.cpp.
#pragma once

#include <vector>

#include "config/config.h"
#include "models/model.h"

namespace strata::config {

// A group that matches nothing is a typing mistake, and so is one for Muon that matches no matrix within a
// block.
void check_groups(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults);
// µP's factors are derived for Adam's update.
void check_optimizers(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults);

}  // namespace strata::config
