#include "config/pipeline.h"

#include "base/error.h"
#include "base/file.h"
#include "config/layout.h"
#include "models/hybrid.h"
#include "models/parametrization.h"
#include "parallel/check.h"
#include "parallel/messages.h"
#include "parallel/schedule_json.h"
#include "parallel/schedules.h"

namespace strata::config {
namespace {

// The keys.
constexpr parallel::Words kWords{.schedule = "parallel.schedule",
                                 .virtual_stages = "parallel.virtual_stages",
                                 .ranks = "parallel.pipeline",
                                 .stage_layers = "parallel.stage_layers",
                                 .batch = "training.global_batch_size or training.micro_batch_size"};
constexpr parallel::Words words_of_ramp() {
  parallel::Words words = kWords;
  words.batch = "training.batch_ramp or training.micro_batch_size";
  return words;
}

parallel::ModelParts parts_of(const models::ModelConfig& model) {
  return {.layers = static_cast<int32_t>(model.blocks()),
          .encoder_layers = static_cast<int32_t>(model.encoder_layers),
          .prediction_layers = static_cast<int32_t>(model.predict_layers),
          .tied_embeddings = model.tied};
}

parallel::Schedule schedule_of(const ParallelTable& keys, int32_t micro_batches,
                               const parallel::Words& words) {
  const auto ranks = static_cast<int32_t>(keys.pipeline);
  if (parallel::find_schedule_kind(keys.schedule) != nullptr || !keys.schedule.ends_with(".json"))
    return parallel::make_schedule(
        {keys.schedule, ranks, micro_batches, static_cast<int32_t>(keys.virtual_stages)}, words);
  const std::string text = read_file(keys.schedule);
  parallel::Schedule schedule = parallel::parse_schedule(text, keys.schedule);
  parallel::require_sound(schedule, keys.schedule);
  if (schedule.rank_count() != ranks || schedule.micro_batches != micro_batches) {
    throw ConfigError(
        "[parallel.schedule] {} is for {} ranks and {} micro-batches, but the run has pipeline = {} and {} "
        "micro-batches per step (training.global_batch_size over micro_batch_size and the ranks of a batch)",
        keys.schedule, schedule.rank_count(), schedule.micro_batches, ranks, micro_batches);
  }
  return schedule;
}

parallel::StageLayout layout_of(const RunConfig& config, const models::ModelConfig& model,
                                const parallel::PartCosts& costs, int32_t stages) {
  const parallel::ModelParts parts = parts_of(model);
  const Auto<StageLayers>& keys = config.parallel.stage_layers;
  if (keys.is_word()) return parallel::balanced_layout(costs, parts, stages, kWords);
  if (!(*keys).layout.empty()) {
    parallel::StageLayout layout = parallel::parse_layout((*keys).layout, parts, stages, kWords);
    if (layout.back().prediction_layers < parts.prediction_layers) {
      throw ConfigError(
          "[parallel.stage_layers] \"{}\": found m in a stage before the last, but layers that predict further "
          "tokens read the head; put every m next to L",
          (*keys).layout);
    }
    return layout;
  }
  return parallel::layout_of_list((*keys).layers, parts, stages, kWords);
}

}  // namespace

parallel::PartCosts costs_of_parts(const models::ModelConfig& model, int64_t sequence_length) {
  parallel::PartCosts costs;
  // A matmul takes 6 operations per element and token, forward and backward; attention, half of two matmuls.
  const double attention =
      3 * static_cast<double>(sequence_length) * static_cast<double>(model.q_width() + model.value_width());
  for (int64_t i = 0; i < model.blocks(); ++i) {
    const int64_t of_stack = i < model.encoder_layers ? i : i - model.encoder_layers;
    costs.layers.push_back((model.has_attention(of_stack) ? attention : 0) +
                           3 * models::recurrence_flops_per_token(model, model.kind(of_stack).mixer));
  }
  const auto roles = models::parameter_roles(model);
  for (const auto& [name, shape] : models::parameter_shapes(model)) {
    if (!models::is_hidden_matrix(roles.at(name))) continue;
    const std::string prefix = name.starts_with("encoder.layers.") ? "encoder.layers." : "layers.";
    if (!name.starts_with(prefix)) continue;
    const bool of_decoder = prefix == "layers.";
    const auto layer = std::stoll(name.substr(prefix.size())) + (of_decoder ? model.encoder_layers : 0);
    const double cost = 6 * models::elements_for_a_token(model, roles.at(name), shape);
    if (layer < model.blocks()) {
      costs.layers[static_cast<size_t>(layer)] += cost;
    } else {
      costs.prediction_layer += cost / static_cast<double>(model.predict_layers);
    }
  }
  costs.head = 6 * static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
  if (model.predict_layers > 0) costs.prediction_layer += attention + costs.head;
  // An embedding look-up has no multiplications; count reading and adding a row as a few operations per
  // element.
  costs.embedding = 16 * static_cast<double>(model.hidden_size);
  return costs;
}

std::shared_ptr<const program::Pipeline> pipeline_of(const RunConfig& config,
                                                     const models::ModelConfig& model,
                                                     const parallel::PartCosts& costs, int32_t place,
                                                     int64_t batch) {
  if (config.parallel.pipeline <= 1) return nullptr;
  auto pipeline = std::make_shared<program::Pipeline>();
  pipeline->schedule =
      schedule_of(config.parallel, static_cast<int32_t>(micro_batches_of_part(config, batch)),
                  batch == config.training.global_batch_size ? kWords : words_of_ramp());
  pipeline->parts = parts_of(model);
  pipeline->layout = layout_of(config, model, costs, pipeline->schedule.stages);
  pipeline->rank = place;
  // One more than the step needs to finish: a sender proceeds while its last message is read.
  pipeline->send_buffers = parallel::send_buffers_of(pipeline->schedule) + 1;
  return pipeline;
}

}  // namespace strata::config
