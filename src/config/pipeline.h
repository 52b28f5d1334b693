// Turns the pipeline keys of [parallel] into model stages and a schedule.
#pragma once

#include <memory>

#include "config/run_config.h"
#include "models/model.h"
#include "program/pipeline.h"

namespace strata::config {

// The pipeline of the rank at `place` on the pipeline axis, for a batch of this number of sequences; nullptr
// without a pipeline. `costs` balance parallel.stage_layers = "auto". Throws ConfigError if no schedule or layout
// permits it, with an alternative.
std::shared_ptr<const program::Pipeline> pipeline_of(const RunConfig& config,
                                                     const models::ModelConfig& model,
                                                     const parallel::PartCosts& costs, int32_t place,
                                                     int64_t batch);

// Floating-point operations per sequence.
parallel::PartCosts costs_of_parts(const models::ModelConfig& model, int64_t sequence_length);

}  // namespace strata::config
