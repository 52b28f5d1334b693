// A small model under a recipe, a step of it on the ranks of a mesh, and how far its gradients are from another's.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "mesh_model.h"

namespace strata::program {

inline constexpr int64_t kTokensOfSequence = 512;  // two chunks of 128 a rank of context 2

inline CompileOptions options_of_recipe(const std::string& preset, const std::string& recipe) {
  CompileOptions options = tiny_options(preset);
  options.model.vocab_size = 101;
  options.model.hidden_size = 256;
  options.model.layers = 2;
  options.model.heads = options.model.kv_heads = 4;
  options.model.head_dim = 64;
  options.model.max_positions = kTokensOfSequence;
  options.rule_of = steady_rule;
  options.recompute = Recompute::kNone;
  options.precision = std::make_shared<const Precision>(
      Precision{.recipe = *quantize::find_recipe(recipe), .sums = {}, .keeps = [](const auto&, const auto&) {
                  return false;
                }});
  return options;
}

inline MeshRanks step_of(const CompileOptions& options, int64_t sequences = 2,
                         int64_t length = kTokensOfSequence) {
  const Request request{
      .kind = Kind::kTrain, .sequences = sequences / options.mesh.batch_ranks(), .sequence_length = length};
  return {compile({request}, options), 3, [&](Executor& executor, const graph::Coordinates& at) {
            fill_batch(executor, at, false);
            write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
            executor.run_script(0);
          }};
}

// |found − wanted| / |wanted|
inline double distance(const Tensor& found, const Tensor& wanted) {
  EXPECT_EQ(found.shape, wanted.shape);
  double apart = 0, all = 0;
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    apart += std::pow(found.values[i] - wanted.values[i], 2);
    all += std::pow(wanted.values[i], 2);
  }
  return std::sqrt(all > 0 ? apart / all : apart);
}

// Of all gradients, or of those whose names `takes` accepts.
inline double greatest_distance(
    const MeshRanks& found, const MeshRanks& wanted,
    const std::function<bool(const std::string&)>& takes = [](const std::string&) { return true; }) {
  double most = 0;
  const graph::Graph& graph = wanted.set().programs[0].graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const std::string& name = graph.value(parameter.gradient).name;
    if (takes(name)) most = std::max(most, distance(found.whole(name), wanted.whole(name)));
  }
  return most;
}

}  // namespace strata::program
