// Checks [optimizer] of a run against the model. Internal to resolve_model.cpp.
#pragma once

#include <vector>

#include "config/config.h"
#include "models/model.h"

namespace strata::config {

// Rejects groups that match nothing, and Muon groups that match no matrix within a block: both are typos.
// Tensor names that a pattern may have meant, for messages: "similar names are …".
std::string nearest_tensors(const std::string& pattern, const std::vector<models::TensorRow>& tensors);

void check_groups(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues);
// Models whose scores do not follow from the sizes of queries and keys, or which have others too, refuse a limit of scores.
void check_score_limit(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues);
// µP's factors are derived for Adam's update only.
void check_optimizers(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues);

}  // namespace strata::config
