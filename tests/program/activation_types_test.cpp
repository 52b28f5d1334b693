// Each family's gradients with activations in bf16 and fp16 are near those in fp32: no op takes a tensor for one of
// another type.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "fixtures/test_name.h"
#include "precision_model.h"
#include "program/update.h"

namespace strata::program {
namespace {

// Of fp16: gradients of a state space's steps are below its smallest numbers.
float loss_scale_of(const models::ModelConfig& model) {
  return model.state_space ? 4096 : 1;
}

MeshRanks step_in(const std::string& preset, DType activations, layers::Settings::Indexer indexer) {
  CompileOptions options = tiny_options(preset_of(preset));
  options.model = small_model(preset);
  options.rule_of = steady_rule;
  options.activations = activations;
  options.indexer = indexer;
  return MeshRanks(compile({request_for(options.model, 1)}, options), 3,
                   [&options, activations](Executor& executor, const graph::Coordinates& at) {
                     fill_batch(executor, at, true);
                     write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
                     if (activations == DType::kF16) start_loss_scale(executor, loss_scale_of(options.model));
                     executor.run_script(0);
                   });
}

class ActivationTypes : public testing::TestWithParam<const char*> {};

TEST_P(ActivationTypes, GradientsAreNearThoseInFp32) {
  using Indexer = layers::Settings::Indexer;
  const std::string preset = GetParam();
  // With chosen keys, another choice changes much: the loss of indexers is compared where all keys take part.
  const bool chooses = small_model(preset).indexer.has_value();
  const Indexer indexer = chooses ? Indexer::kDense : Indexer::kSparse;
  const MeshRanks wanted = step_in(preset, DType::kF32, indexer);
  const graph::Graph& graph = wanted.set().programs[0].graph;
  // Rounding sends a token of some families to another expert.
  constexpr double kMost = 0.16;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const MeshRanks found = step_in(preset, dtype, indexer);
    for (const graph::Parameter& parameter : graph.parameters()) {
      if (parameter.gradient == graph::kNone) continue;
      const std::string& name = graph.value(parameter.gradient).name;
      Tensor gradient = found.whole(name);
      for (double& value : gradient.values)
        value /= dtype == DType::kF16 ? loss_scale_of(small_model(preset)) : 1;
      EXPECT_LE(distance(gradient, wanted.whole(name)), kMost) << name << " in " << name_of(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ActivationTypes,
                         testing::Values("llama3-5m", "gpt2-124m", "qwen3-0.6b", "gemma2-2b", "gemma3-270m",
                                         "pythia-14m", "phi3-mini", "starcoder2-3b", "stablelm2-1.6b",
                                         "olmo2-1b", "olmo3-7b", "deepseek2-6m", "deepseek3-6m",
                                         "deepseek3-6m+predicting", "bert-tiny", "t5-small", "t5-v1.1-small",
                                         "mixtral-8x7b", "gpt-oss-20b", "gdn-30m", "qwen3-next-80b-a3b",
                                         "olmo-hybrid-7b", "kda-30m", "mamba2-30m", "nemotron-3-nano-30b-a3b",
                                         "granite-4.0-h-tiny", "falcon-h1-0.5b", "lfm2-8b-a1b", "dsa-30m",
                                         "glm-5"),
                         [](const testing::TestParamInfo<const char*>& one) { return test_name(one.param); });

}  // namespace
}  // namespace strata::program
