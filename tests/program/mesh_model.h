// Small models for the ranks of a mesh, and a batch for them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "fixtures/columns.h"
#include "fixtures/mesh_ranks.h"
#include "fixtures/tiny_program.h"

namespace strata::program {

// Models are named after presets; the suffix "+predicting" adds two layers that predict further tokens.
inline constexpr std::string_view kPredicting = "+predicting";
inline std::string preset_of(const std::string& name) {
  return name.substr(0, name.find(kPredicting));
}

// Reduces the sizes; all are divisible by four ranks.
// A layer of each kind that a hybrid has, and small sizes of its mixers.
inline void shrink_mixers(models::ModelConfig& model) {
  if (!model.has_states()) return;
  std::vector<layers::LayerKind> kinds;
  std::vector<int64_t> dense;
  for (size_t i = 0; i < model.layer_kinds.size(); ++i) {
    const layers::LayerKind kind = model.layer_kinds[i];
    const bool has_experts = model.experts.at(static_cast<int64_t>(i));
    bool known = false;
    for (size_t j = 0; j < kinds.size(); ++j) {
      const bool is_dense = std::find(dense.begin(), dense.end(), static_cast<int64_t>(j)) != dense.end();
      known = known || (kinds[j] == kind && is_dense != has_experts);
    }
    if (known) continue;
    if (!has_experts) dense.push_back(std::ssize(kinds));
    kinds.push_back(kind);
  }
  if (kinds.size() == 1) kinds.push_back(kinds[0]);
  model.layer_kinds = kinds;
  model.layers = std::ssize(kinds);
  if (model.experts.count > 0) {
    model.experts.first = model.experts.period = 0;
    model.experts.dense = dense;
    if (model.experts.latent_size > 0) model.experts.latent_size = 20;
  }
  if (model.delta) {
    const bool square = model.delta->decays_by_channel;  // one size of heads
    model.delta->key_heads = 4;
    model.delta->value_heads = square ? 4 : 8;
    model.delta->key_dim = 6;
    model.delta->value_dim = square ? 6 : 4;
    if (model.delta->gate_rank > 0) model.delta->gate_rank = 5;
    model.delta->taps = 3;
  }
  if (model.state_space) {
    model.state_space->heads = 8;
    model.state_space->head_dim = 6;
    model.state_space->groups = std::min<int64_t>(model.state_space->groups, 4);
    model.state_space->state_dim = 5;
  }
}

// Repeats the layers of a hybrid until it has `count`; other models keep their number.
inline void set_layers(models::ModelConfig& model, int64_t count) {
  std::vector<layers::LayerKind>& kinds = model.layer_kinds;
  const auto period = static_cast<int64_t>(kinds.size());
  std::vector<int64_t>& dense = model.experts.dense;
  for (int64_t i = 0; period > 0 && std::ssize(kinds) < count; ++i) {
    if (std::find(dense.begin(), dense.end(), i) != dense.end()) dense.push_back(std::ssize(kinds));
    kinds.push_back(layers::LayerKind(kinds[static_cast<size_t>(i)]));
  }
  std::vector<bool>& without = model.without_indexer;
  while (!without.empty() && std::ssize(without) < count) without.push_back(without.size() % 3 != 0);
  model.layers = count;
}

inline models::ModelConfig small_model(const std::string& name) {
  models::ModelConfig model = models::preset(preset_of(name));
  if (name.ends_with(kPredicting)) model.predict_layers = 2;
  model.vocab_size = 101;
  model.hidden_size = 32;
  model.layers = 2;
  if (model.encoder_layers > 0) model.encoder_layers = 2;
  model.kv_heads = model.kv_heads == model.heads ? 8 : 4;
  model.heads = 8;
  model.head_dim = 8;
  model.intermediate_size = 48;
  if (model.positions != models::Positions::kRelative) model.max_positions = 64;
  if (model.sliding_window.size > 0) model.sliding_window.size = 7;
  if (model.temper.floor > 0) {  // in every second layer
    model.sliding_window.period = 2;
    model.temper.floor = 5;
  }
  if (model.experts.clamp.limit > 0) model.experts.clamp.limit = 0.5;
  if (model.experts.count > 0) {
    model.experts.count = 6;
    model.experts.first = std::min<int64_t>(model.experts.first, 1);
    model.experts.route.k = 2;
    model.experts.route.groups = model.experts.route.kept_groups = 1;
    model.experts.intermediate_size = 16;
    if (model.experts.shared_size > 0) model.experts.shared_size = 24;
    // Large enough for an error in it to show.
    model.experts.balance_coefficient = 1;
    model.experts.z_coefficient = 0.1;
    // Small enough for experts to fill up.
    if (model.experts.capacity.slots > 0) model.experts.capacity.slots = 3;
  }
  if (model.latent) {
    const bool query = model.latent->query_rank > 0;
    model.latent = {
        .query_rank = query ? 20 : 0, .rank = 12, .plain_dim = 6, .rotary_dim = 4, .value_dim = 8};
    model.head_dim = model.latent->head_dim();
  }
  if (model.indexer) {
    model.indexer->heads = 3;
    model.indexer->dim = 6;
    model.indexer->count = 5;
    // Small weights leave all keys nearly alike, to attention and to the indexer.
    model.init_std = 0.2;
    // The second layer shares the first one's choice where the family has such layers.
    if (!model.without_indexer.empty()) model.without_indexer = {false, true};
  }
  shrink_mixers(model);
  return model;
}

inline constexpr int64_t kLength = 24, kSequences = 12;

inline Request request_for(const models::ModelConfig& model, int64_t ranks) {
  const bool encoder = model.architecture == models::Architecture::kEncoderDecoder;
  return {.kind = Kind::kTrain,
          .sequences = kSequences / ranks,
          .sequence_length = kLength,
          .encoder_length = encoder ? 2 * kLength : 0,
          .micro_batches = 2};
}
// The values of a rank of the context axis: two chunks of each sequence of this length.
inline std::vector<int32_t> shared_rows(const std::vector<int32_t>& rows, int64_t length, int64_t index,
                                        int64_t ranks) {
  std::vector<int32_t> held;
  const int64_t chunk = length / (2 * ranks);
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const int64_t of = i % length / chunk;
    if (of == index || of == 2 * ranks - 1 - index) held.push_back(rows[static_cast<size_t>(i)]);
  }
  return held;
}
// Sequence s of a micro-batch is the same on every rank. `masks`: every fifth token has no target. The
// term counts do not match the targets: any numbers weigh losses equally on all ranks.
inline void fill_batch(Executor& executor, const graph::Coordinates& at, bool masks = true) {
  const graph::Mesh& mesh = executor.set().options.mesh;
  const int64_t vocab = executor.set().options.model.vocab_size;
  const int64_t part = at[graph::Axis::kReplicate] * mesh.size(graph::Axis::kShard) + at[graph::Axis::kShard];
  const Request& request = executor.program(0).request;
  write_terms(executor, std::array<int64_t, 3>{400, 300, 250});
  for (int64_t micro = 0; micro < request.micro_batches; ++micro) {
    for (const std::string name : {"tokens", "targets", "positions", "kv_begin", "encoder_tokens",
                                   "encoder_kv_begin", "cross_kv_begin"}) {
      const int64_t length = name.starts_with("encoder_") ? request.encoder_length : request.sequence_length;
      std::vector<int32_t> values;
      for (int64_t s = part * request.sequences; s < (part + 1) * request.sequences; ++s) {
        for (int64_t i = 0; i < length; ++i) {
          const int64_t document = i < length / 3 ? 0 : length / 3;
          const int64_t read = i < length / 3 ? 0 : request.encoder_length / 3;
          const int64_t mixed = (s * 131 + i * 37 + micro * 11 + static_cast<int64_t>(name.size()) * 5);
          const bool masked = masks && name == "targets" && mixed % 5 == s % 5;
          values.push_back(static_cast<int32_t>(name == "positions"          ? i - document
                                                : name == "kv_begin"         ? document
                                                : name == "encoder_kv_begin" ? document
                                                : name == "cross_kv_begin"   ? read
                                                : masked                     ? -1
                                                                             : mixed % vocab));
        }
      }
      const graph::Graph& graph = executor.program(0).graph;
      const graph::ValueId input = graph.find_value(name);
      if (input == graph::kNone) continue;
      constexpr auto kContext = graph::Axis::kContext;
      if (graph.placement(input, kContext) != graph::Placement::replicated())
        values = shared_rows(values, length, at[kContext], mesh.size(kContext));
      executor.upload_column(0, column_named(name), micro, values);
    }
    if (executor.program(0).graph.find_value("samples") == graph::kNone) continue;
    std::vector<int32_t> samples;
    for (int64_t s = 0; s < request.sequences; ++s)
      samples.push_back(static_cast<int32_t>(micro * 100 + part * request.sequences + s));
    executor.upload_column(0, Column::kSamples, micro, samples);
  }
}

inline double largest(const Tensor& tensor) {
  double most = 0;
  for (const double value : tensor.values) most = std::max(most, std::abs(value));
  return most;
}

inline void expect_near(const Tensor& found, const Tensor& wanted, double tolerance,
                        const std::string& name) {
  ASSERT_EQ(found.shape, wanted.shape) << name;
  const double scale = largest(wanted) + 1e-6;
  for (size_t i = 0; i < wanted.values.size(); ++i)
    ASSERT_NEAR(found.values[i], wanted.values[i], tolerance * scale) << name << ", element " << i;
}

}  // namespace strata::program
