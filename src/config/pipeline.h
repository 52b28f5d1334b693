// [parallel]'s pipeline: from its keys to the stages of a model and the order in which ranks work on them.
#pragma once

#include <memory>

#include "config/run_config.h"
#include "models/model.h"
#include "program/pipeline.h"

namespace strata::config {

// What the rank at `place` on the pipeline axis runs; nullptr where there is no pipeline. ConfigError for
// what no schedule or layout allows, with what would do.
std::shared_ptr<const program::Pipeline> pipeline_of(const RunConfig& config,
                                                     const models::ModelConfig& model, int32_t place = 0);

// Of the layout that parallel.stage_layers = "auto" is balanced by: floating-point operations of a sequence.
parallel::PartCosts costs_of_parts(const models::ModelConfig& model, int64_t sequence_length);

}  // namespace strata::config
