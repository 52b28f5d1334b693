// Pipelines for tests: a schedule for a model, and the compile options of each rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/messages.h"
#include "parallel/schedules.h"
#include "program/pipeline.h"

namespace strata::program {

inline parallel::ModelParts parts_of(const models::ModelConfig& model) {
  return {.layers = static_cast<int32_t>(model.blocks()),
          .encoder_layers = static_cast<int32_t>(model.encoder_layers),
          .prediction_layers = static_cast<int32_t>(model.predict_layers),
          .tied_embeddings = model.tied};
}

// `layout`: in Megatron-LM's notation; empty: as even as possible.
inline Pipeline pipeline_of(const parallel::ScheduleRequest& request, const models::ModelConfig& model,
                            const std::string& layout = "") {
  Pipeline pipeline;
  pipeline.parts = parts_of(model);
  pipeline.schedule = parallel::make_schedule(request);
  const int32_t stages = pipeline.schedule.stages;
  parallel::PartCosts costs;
  costs.embedding = 0.1;
  costs.head = 0.5;
  costs.prediction_layer = 1.5;
  costs.layers.assign(static_cast<size_t>(pipeline.parts.layers), 1);
  pipeline.layout = layout.empty() ? parallel::balanced_layout(costs, pipeline.parts, stages)
                                   : parallel::parse_layout(layout, pipeline.parts, stages);
  pipeline.send_buffers = parallel::send_buffers_of(pipeline.schedule);
  return pipeline;
}

// The options of the rank at `place` in the pipeline.
inline CompileOptions at_place(CompileOptions options, Pipeline pipeline, int32_t place) {
  pipeline.rank = place;
  options.backward = pipeline.splits_backward() ? Backward::kSplit : Backward::kCombined;
  options.pipeline = std::make_shared<const Pipeline>(std::move(pipeline));
  return options;
}

}  // namespace strata::program
