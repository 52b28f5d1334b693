// Initialization compared with the schemes' sources, and µP's factors with table 8 of Yang et al. 2022.
#include "models/parametrization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>

#include "base/error.h"

namespace strata::models {
namespace {

using graph::Init;

std::map<std::string, Init> starts_of(const ModelConfig& config) {
  graph::Graph graph;
  layers::Context context{.graph = graph, .rows = {.length = 1, .sequences = 1}};
  layers::add_batch(context);
  config.family->build(config, context);
  std::map<std::string, Init> starts;
  for (const graph::Parameter& parameter : graph.parameters())
    starts.emplace(graph.value(parameter.value).name, parameter.init);
  return starts;
}

void expect_std(const std::map<std::string, Init>& starts, const char* name, double std,
                Init::Kind kind = Init::Kind::kNormal) {
  ASSERT_TRUE(starts.contains(name)) << name;
  EXPECT_EQ(starts.at(name).kind, kind) << name;
  EXPECT_NEAR(starts.at(name).std, std, 1e-12) << name;
}

TEST(Initialization, OfGpt2ScalesOutputProjections) {
  const auto starts = starts_of(preset("gpt2-124m"));
  expect_std(starts, "embedding.weight", 0.02);
  expect_std(starts, "positions.weight", 0.02);
  expect_std(starts, "layers.3.attention.qkv.weight", 0.02);
  expect_std(starts, "layers.3.attention.out.weight", 0.02 / std::sqrt(24.0));
  expect_std(starts, "layers.11.ffn.down.weight", 0.02 / std::sqrt(24.0));
  EXPECT_EQ(starts.at("layers.3.ffn.up.bias").kind, Init::Kind::kZeros);
  EXPECT_EQ(starts.at("final_norm.weight").kind, Init::Kind::kOnes);
}

TEST(Initialization, OfGptNeoXIsSmallAndWang) {
  const auto starts = starts_of(preset("pythia-70m"));  // d 512, 6 layers
  for (const char* name :
       {"embedding.weight", "head.weight", "layers.0.attention.qkv.weight", "layers.5.ffn.up.weight"})
    expect_std(starts, name, std::sqrt(2.0 / (5 * 512)));
  for (const char* name : {"layers.0.attention.out.weight", "layers.5.ffn.down.weight"})
    expect_std(starts, name, 2.0 / 6 / std::sqrt(512.0));
}

TEST(Initialization, OfOlmoDependsOnTheLayer) {
  const auto starts = starts_of(preset("olmo-7b"));  // d 4096, FFN 11008
  const auto cut = Init::Kind::kTruncatedNormal;
  for (const char* name : {"embedding.weight", "head.weight", "layers.31.attention.qkv.weight"})
    expect_std(starts, name, 1 / std::sqrt(4096.0), cut);
  expect_std(starts, "layers.0.attention.out.weight", 1 / std::sqrt(2 * 4096.0), cut);
  expect_std(starts, "layers.31.attention.out.weight", 1 / std::sqrt(2 * 4096.0 * 32), cut);
  expect_std(starts, "layers.9.ffn.down.weight", 1 / std::sqrt(2 * 11008.0 * 10), cut);
}

TEST(Initialization, OfOlmo2IsTruncatedAndTheSameEverywhere) {
  const auto starts = starts_of(preset("olmo2-1b"));
  for (const char* name : {"embedding.weight", "head.weight", "layers.4.attention.qkv.weight",
                           "layers.4.attention.out.weight", "layers.15.ffn.down.weight"})
    expect_std(starts, name, 0.02, Init::Kind::kTruncatedNormal);
}

TEST(Initialization, OfTheOthersIsTheConfigsRange) {
  for (const char* name :
       {"mistral-7b", "qwen2-0.5b", "qwen3-0.6b", "gemma2-2b", "gemma3-270m", "phi3-mini"}) {
    const auto starts = starts_of(preset(name));
    expect_std(starts, "embedding.weight", 0.02);
    expect_std(starts, "layers.2.attention.out.weight", 0.02);
  }
}

RateScale rates_of(const ModelConfig& config, const std::string& name) {
  graph::Graph graph;
  layers::Context context{.graph = graph, .rows = {.length = 1, .sequences = 1}};
  layers::add_batch(context);
  config.family->build(config, context);
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (graph.value(parameter.value).name == name) return rate_scale(config, parameter.role);
  }
  throw std::out_of_range(name);
}

// Table 8 of the paper for Adam, with table 9's scores by 1 / head size: relative to a base of a quarter the
// width.
TEST(Mup, FactorsAreTheTables) {
  ModelConfig config = preset("llama3-29m");
  config.tied = false;
  const auto base = starts_of(config);
  config.mup.base_hidden_size = config.hidden_size;
  config.mup.base_head_dim = config.head_dim;
  const auto same = starts_of(config);
  for (const auto& [name, init] : base) {
    EXPECT_EQ(same.at(name).std, init.std) << name;
    EXPECT_EQ(rates_of(config, name).whole, 1) << name;
    EXPECT_TRUE(rates_of(config, name).parts.empty()) << name;
  }
  config.mup.base_hidden_size = config.hidden_size / 4;
  config.mup.base_head_dim = config.head_dim / 4;
  const auto wide = starts_of(config);
  for (const auto& [name, init] : base) {
    const bool hidden = name.starts_with("layers.") && init.kind == Init::Kind::kNormal;
    const double start = hidden ? 0.5 : name == "head.weight" ? 0.25 : 1;
    const double rate = hidden || name == "head.weight" ? 0.25 : 1;
    EXPECT_NEAR(wide.at(name).std, start * init.std, 1e-12) << name;
    EXPECT_EQ(wide.at(name).kind, init.kind) << name;
    EXPECT_EQ(rates_of(config, name).whole, rate) << name;
    const bool qkv = name.ends_with("attention.qkv.weight");
    EXPECT_EQ(rates_of(config, name).parts, qkv ? (std::vector<double>{0.5, 1, 1}) : std::vector<double>{})
        << name;
    EXPECT_EQ(wide.at(name).part_scales, rates_of(config, name).parts) << name;
  }
}

// Experts are hidden matrices; routers and gates are outputs, the same number at any width.
TEST(Mup, RoutersAreHeadsAndExpertsAreHidden) {
  for (const char* name : {"qwen1.5-moe-a2.7b", "glm-4.5-air"}) {
    ModelConfig config = preset(name);
    config.layers = 2;
    config.predict_layers = config.experts.router_bias ? 1 : 0;
    const auto base = starts_of(config);
    config.mup.base_hidden_size = config.hidden_size / 4;
    ASSERT_TRUE(mup_errors(config).empty()) << name;
    const auto wide = starts_of(config);
    int routers = 0, experts = 0;
    for (const auto& [tensor, init] : base) {
      if (!tensor.starts_with("layers.")) continue;
      const bool router = tensor.ends_with(".router.weight") || tensor.ends_with(".gate.weight");
      const bool matrix = init.kind == Init::Kind::kNormal;
      EXPECT_NEAR(wide.at(tensor).std, (router ? 0.25 : matrix ? 0.5 : 1) * init.std, 1e-12) << tensor;
      // The last norm of a module feeds the head like the model's own; here the head is not tied.
      EXPECT_EQ(rates_of(config, tensor).whole, matrix ? 0.25 : 1) << tensor;
      routers += router ? 1 : 0;
      experts += tensor.find(".experts.") != std::string::npos ? 1 : 0;
    }
    EXPECT_GT(routers, 1) << name;
    EXPECT_GT(experts, 3) << name;
  }
}

TEST(Mup, ATiedHeadsMultiplierIsInTheLastNorm) {
  ModelConfig config = preset("gpt2-124m");
  config.mup.base_hidden_size = config.hidden_size / 4;
  const auto starts = starts_of(config);
  EXPECT_EQ(starts.at("final_norm.weight").kind, Init::Kind::kConstant);
  EXPECT_EQ(starts.at("final_norm.weight").value, 0.25);
  EXPECT_EQ(starts.at("final_norm.bias").kind, Init::Kind::kZeros);
  EXPECT_EQ(rates_of(config, "final_norm.weight").whole, 0.25);
  EXPECT_EQ(rates_of(config, "final_norm.bias").whole, 0.25);
  EXPECT_EQ(rates_of(config, "embedding.weight").whole, 1);
  EXPECT_EQ(rates_of(config, "layers.0.attention_norm.weight").whole, 1);

  config = preset("gemma3-270m");  // its norms multiply by 1 + w, its embedding is multiplied by √d
  config.mup.base_hidden_size = config.hidden_size / 4;
  EXPECT_EQ(starts_of(config).at("final_norm.weight").value, 0.5 - 1);
  EXPECT_EQ(rates_of(config, "embedding.weight").whole, 0.5);
}

// Schemes that depend on the sizes already match µP for hidden matrices.
TEST(Mup, HiddenMatricesOfSmallWangDoNotChange) {
  ModelConfig config = preset("pythia-70m");
  const auto standard = starts_of(config);
  config.mup.base_hidden_size = config.hidden_size / 4;
  const auto mup = starts_of(config);
  for (const auto& [name, init] : standard) {
    if (!name.starts_with("layers.")) continue;
    EXPECT_NEAR(mup.at(name).std, init.std, 1e-12) << name;
  }
  EXPECT_NEAR(mup.at("embedding.weight").std, 2 * standard.at("embedding.weight").std, 1e-12);
}

TEST(Mup, RefusesModelsWithoutAPlaceForAMultiplier) {
  ModelConfig config = preset("olmo-1b");  // tied, and norms without weights
  EXPECT_TRUE(mup_errors(config).empty());
  config.mup.base_hidden_size = config.hidden_size / 2;
  ASSERT_EQ(mup_errors(config).size(), 1u);
  EXPECT_NE(mup_errors(config)[0].find("tie_word_embeddings"), std::string::npos);
  config.tied = false;
  EXPECT_TRUE(mup_errors(config).empty());

  config = preset("gemma2-27b");  // scores by 1/√144, heads of 128
  config.mup = {.base_hidden_size = config.hidden_size / 2, .base_head_dim = config.head_dim};
  EXPECT_TRUE(mup_errors(config).empty());
  config.mup.base_head_dim = config.head_dim / 2;
  ASSERT_EQ(mup_errors(config).size(), 1u);
  EXPECT_NE(mup_errors(config)[0].find("query_pre_attn_scalar"), std::string::npos);
}

// Roles, not names or shapes, determine weight decay and matmuls. Roles and shapes agree in every family.
TEST(Roles, DetermineWhatIsAMatrix) {
  for (const char* name :
       {"gpt2-124m", "pythia-70m", "llama3-29m", "gemma3-270m", "olmo-1b", "bert-base", "t5-small"}) {
    const ModelConfig config = preset(name);
    graph::Graph graph;
    layers::Context context{.graph = graph, .rows = {.length = 1, .sequences = 1}};
    if (config.architecture == Architecture::kEncoderDecoder) context.rows.encoder_length = 1;
    layers::add_batch(context);
    config.family->build(config, context);
    for (const graph::Parameter& parameter : graph.parameters()) {
      const graph::Value& value = graph.value(parameter.value);
      EXPECT_EQ(is_matrix(parameter.role), value.shape.rank() >= 2)
          << name << ", " << value.name << ": " << graph::name_of(parameter.role);
    }
  }
}

TEST(Roles, UnknownOnesAreErrors) {
  const auto unknown = static_cast<graph::ParameterRole>(200);
  EXPECT_THROW(is_matrix(unknown), InternalError);
  EXPECT_THROW(rate_scale(preset("gpt2-124m"), unknown), InternalError);
}

}  // namespace
}  // namespace strata::models
