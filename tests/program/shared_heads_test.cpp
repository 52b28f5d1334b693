// Fewer key-value heads than ranks of the tensor axis: several ranks share a head.
#include <gtest/gtest.h>

#include "base/error.h"
#include "mesh_model.h"
#include "models/parametrization.h"

namespace strata::program {
namespace {

CompileOptions options_of(const std::string& preset, int64_t kv_heads) {
  CompileOptions options = tiny_options(preset);
  options.model = small_model(preset);
  options.rule_of = steady_rule;
  options.model.kv_heads = kv_heads;
  return options;
}

MeshRanks take_step(const CompileOptions& options) {
  return MeshRanks(compile({request_for(options.model, options.mesh.batch_ranks())}, options), 3,
                   [](Executor& executor, const graph::Coordinates& at) {
                     fill_batch(executor, at);
                     write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
                     executor.run_script(0);
                   });
}

// The rows of a one-rank tensor (a parameter or its gradient) that form a parameter of several ranks.
Tensor part_of(const Tensor& whole, int64_t first_row, int64_t rows) {
  Tensor part = whole;
  const int64_t columns = whole.shape.elements() / whole.shape[0];
  part.shape.set(0, rows);
  const auto begin = whole.values.begin() + first_row * columns;
  part.values.assign(begin, begin + rows * columns);
  return part;
}

void expect_results_of_one_rank(CompileOptions options) {
  const MeshRanks one = take_step(options);
  struct Layout {
    int64_t shard, tensor;
    bool sequence_parallel;
    int zero;
  };
  for (const Layout& layout : {Layout{1, 4, true, 0}, Layout{1, 4, false, 0}, Layout{2, 4, true, 3}}) {
    options.mesh = graph::Mesh::of(1, layout.shard, 1, layout.tensor);
    options.sequence_parallel = layout.sequence_parallel;
    options.zero = layout.zero;
    const MeshRanks ranks = take_step(options);
    int64_t parts = 0;
    for (const graph::Parameter& parameter : ranks.set().programs[0].graph.parameters()) {
      const std::string name = ranks.set().programs[0].graph.value(parameter.value).name;
      parts += parameter.part.of.empty() ? 0 : 1;
      for (const std::string prefix : {"", "grad."}) {
        const Tensor found = ranks.whole(prefix + name);
        const Tensor whole = one.whole(prefix + (parameter.part.of.empty() ? name : parameter.part.of));
        expect_near(found, part_of(whole, parameter.part.first_row, found.shape[0]), 2e-5, prefix + name);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    EXPECT_GE(parts, 2 * options.model.layers);
    for (const char* name : {"loss_sum", "token_count", "grad_norm", "param_norm"})
      expect_near(ranks.whole(name), one.whole(name), 2e-5, name);
  }
}

// Lowers the initial weights and the learning rate of queries relative to keys.
void scale_widths(CompileOptions& options) {
  options.model.mup = {.base_hidden_size = 16, .base_head_dim = 2};
  options.rule_of = [model = options.model](const std::string&, graph::ParameterRole role) {
    models::RateScale scale = models::rate_scale(model, role);
    return optim::ParameterRule{{{0, {.lr_scale = scale.whole, .optimizer = kSteadyAdamW}}},
                                std::move(scale.parts)};
  };
}

class SharedHeads : public testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(SharedHeads, MatchOneRank) {
  expect_results_of_one_rank(options_of(std::get<0>(GetParam()), std::get<1>(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Families, SharedHeads,
                         testing::Combine(testing::Values("llama3-5m", "qwen3-0.6b", "gemma3-270m",
                                                          "starcoder2-3b"),
                                          testing::Values(1, 2)),
                         [](const auto& one) {
                           const std::string name = std::get<0>(one.param);
                           return name.substr(0, name.find('-')) + "_" +
                                  std::to_string(std::get<1>(one.param));
                         });

TEST(SharedHeadsTest, UseTheLearningRatesOfTheirSegments) {
  CompileOptions options = options_of("llama3-5m", 2);
  scale_widths(options);
  expect_results_of_one_rank(options);
}

// Initial weights equal those of one rank bit for bit, on whichever ranks they are.
TEST(SharedHeadsTest, StartWithTheWeightsOfOneRank) {
  CompileOptions options = options_of("llama3-5m", 2);
  scale_widths(options);
  const auto first_weights = [&] {
    return MeshRanks(compile({request_for(options.model, 1)}, options), 3,
                     [](Executor&, const graph::Coordinates&) {});
  };
  const MeshRanks one = first_weights();
  options.mesh = graph::Mesh::of(1, 1, 1, 4);
  const MeshRanks four = first_weights();
  const Tensor whole = one.whole("layers.1.attention.qkv.weight");
  const Tensor q = four.whole("layers.1.attention.q.weight"), kv = four.whole("layers.1.attention.kv.weight");
  EXPECT_EQ(q.values, part_of(whole, 0, q.shape[0]).values);
  EXPECT_EQ(kv.values, part_of(whole, q.shape[0], kv.shape[0]).values);
}

TEST(SharedHeadsTest, AreRefusedByNameIfIndivisible) {
  const auto refusal = [](const std::string& preset, int64_t kv_heads, int64_t tensor) -> std::string {
    CompileOptions options = options_of(preset, kv_heads);
    options.model.heads = 12;
    options.mesh = graph::Mesh::of(1, 1, 1, tensor);
    try {
      compile({request_for(options.model, 1)}, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal("llama3-5m", 4, 8).find("12 attention heads"), std::string::npos);
  EXPECT_NE(refusal("llama3-5m", 3, 4).find("3 key-value heads"), std::string::npos);
  // Its files store q, k and v as one tensor.
  EXPECT_NE(refusal("phi3-mini", 2, 4).find("qkv_proj"), std::string::npos);
  EXPECT_EQ(refusal("llama3-5m", 2, 4), "");
}

}  // namespace
}  // namespace strata::program
