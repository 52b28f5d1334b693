// [precision] of a run: its recipe for matmuls in 8 or 4 bits, and what stays out of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "config/resolve.h"
#include "program/program.h"

namespace strata::config {

// The recipe of a run that computes in fp8 or fp4; nullptr for any other. precision.recipe must be resolved.
std::shared_ptr<const program::Precision> precision_of(const RunConfig& config,
                                                       const models::ModelConfig& model);

// The recipe of such a run by name; "auto" stands for the first of its bits: block, or nvfp4.
std::string_view recipe_name(const RunConfig& config);
// Of such a run, for people: "fp8 (block)".
std::string precision_in_words(const RunConfig& config);

// Reports entries of precision.keep that match nothing, and a list that leaves no matmul to the recipe.
void check_keep(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues);

}  // namespace strata::config
