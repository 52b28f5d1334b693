// Frequencies of rotary embedding against transformers (tools/golden/make_rope_golden.py) and published
// values.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "models/model.h"
#include "ops/attention/attention.h"

namespace strata::models {
namespace {

TEST(RopeScaling, FollowsTransformersForEveryKind) {
  const auto cases = parse_json<nlohmann::json>(read_file(Path(STRATA_GOLDEN_MODELS) / "rope.json"));
  ASSERT_GT(cases.size(), 10u);
  for (const auto& one : cases) {
    const std::string name = one["name"];
    ModelConfig config = read_config_json(one["config"].get<std::string>(), name);
    ASSERT_EQ(errors_of(config), std::vector<std::string>{}) << name;
    // Writing it preserves the meaning.
    config = read_config_json(config.family->write(config, DType::kF32), name);
    const auto found = ops::rotation_of(config.rope, config.rotary_dim(), one["positions"].get<int64_t>());
    const auto wanted = one["frequencies"].get<std::vector<double>>();
    ASSERT_EQ(found.frequencies.size(), wanted.size()) << name;
    // transformers computes them in fp32.
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found.frequencies[i] / wanted[i], 1, 2e-6) << name << ", pair " << i;
    EXPECT_NEAR(found.magnitude, one["magnitude"].get<double>(), 1e-6) << name;
  }
}

// Meta's Llama 3.1 scaling: head size 128, theta 5e5, factor 8, wavelengths around 8192.
TEST(RopeScaling, Llama3MatchesPublishedValues) {
  ops::RopeScaling scaling{.theta = 5e5};
  const auto plain = ops::rotation_of(scaling, 128, 100).frequencies;
  scaling.kind = ops::RopeScaling::Kind::kLlama3;
  scaling.factor = 8;
  const auto scaled = ops::rotation_of(scaling, 128, 100).frequencies;
  ASSERT_EQ(scaled.size(), 64u);
  int kept = 0, divided = 0;
  for (size_t i = 0; i < 64; ++i) {
    kept += scaled[i] == plain[i];
    divided += std::abs(scaled[i] * 8 / plain[i] - 1) < 1e-12;
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(divided, 29);
  const std::pair<size_t, double> known[] = {{28, 3.211445995e-3}, {29, 2.166570764e-3},
                                             {30, 1.371893568e-3}, {34, 1.785078128e-4},
                                             {35, 9.556212354e-5}, {63, 3.068925989e-7}};
  for (const auto& [i, value] : known) EXPECT_NEAR(scaled[i] / value, 1, 1e-8) << i;
}

// DeepSeek's YaRN: 64 dimensions, theta 1e4, factor 40 from 4096 positions.
TEST(RopeScaling, YarnMatchesPublishedValues) {
  const ops::RopeScaling scaling{
      .theta = 1e4, .kind = ops::RopeScaling::Kind::kYarn, .factor = 40, .original_positions = 4096};
  const auto found = ops::rotation_of(scaling, 64, 100).frequencies;
  const std::pair<size_t, double> known[] = {{10, 5.623413252e-2}, {11, 3.900692657e-2},
                                             {16, 5.5e-3},         {22, 1.778279410e-4},
                                             {23, 3.333803580e-5}, {31, 3.333803580e-6}};
  for (const auto& [i, value] : known) EXPECT_NEAR(found[i] / value, 1, 1e-8) << i;
}

// Latent attention scales its scores with YaRN: heads of 192, mscale_all_dim of DeepSeek-V3 and of V2-Lite.
TEST(RopeScaling, YarnScalesTheScoresOfLatentAttention) {
  const auto scale_with = [](const nlohmann::json& scaling) {
    nlohmann::json json = {{"model_type", "deepseek_v3"}, {"vocab_size", 61},
                           {"hidden_size", 24},           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},    {"intermediate_size", 32},
                           {"first_k_dense_replace", 1},  {"num_key_value_heads", 2},
                           {"kv_lora_rank", 16},          {"rope_scaling", scaling}};
    const ModelConfig config = read_config_json(dump_json(json), "");
    graph::Graph graph;
    layers::Context context{.graph = graph, .rows = {.length = 4, .sequences = 1}};
    layers::add_batch(context);
    config.family->build(config, context);
    for (const graph::Node& node : graph.nodes())
      if (node.op == &ops::Attention::def) return node.attrs.as<ops::AttentionAttrs>().scale;
    return 0.0;
  };
  const auto yarn = [](double all) {
    return nlohmann::json{{"type", "yarn"},
                          {"factor", 40},
                          {"original_max_position_embeddings", 4096},
                          {"mscale", all},
                          {"mscale_all_dim", all}};
  };
  EXPECT_NEAR(scale_with(yarn(1)), 0.13523378, 1e-8);
  EXPECT_NEAR(scale_with(yarn(0.707)), 0.11472139, 1e-8);
  EXPECT_NEAR(scale_with(nullptr), 1 / std::sqrt(192.0), 1e-12);
}

}  // namespace
}  // namespace strata::models
