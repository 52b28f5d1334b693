// config.json of models with an indexer: its keys, refusals and their messages, and published sizes.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "models/model.h"

namespace strata::models {
namespace {

using Json = nlohmann::json;

Json file_of_preset(const char* name) {
  return parse_json<Json>(write_config_json(preset(name), DType::kBF16));
}

std::string refusal_of(const Json& config) {
  try {
    const std::vector<std::string> errors = errors_of(read_config_json(dump_json(config), "config.json"));
    return errors.empty() ? "" : errors.front();
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<bool> shared_layers(const Json& config) {
  return read_config_json(dump_json(config), "config.json").without_indexer;
}

TEST(SparseConfig, RefusesWhatCannotBe) {
  struct Wrong {
    const char* preset;
    const char* key;
    Json value;
    std::vector<const char*> named;
  };
  std::vector<Json> types(78, "full");
  auto first_shared = types, unknown = types, short_list = types;
  first_shared[0] = "shared";
  unknown[5] = "half";
  short_list.pop_back();
  auto dense_late = std::vector<Json>(78, "sparse");
  dense_late[3] = "dense";
  const Wrong all[] = {
      {"deepseek-v3.2", "index_topk", 0, {"index_topk is 0", "1 to 163840", "max_position_embeddings"}},
      {"deepseek-v3.2", "index_topk", 200'000, {"index_topk is 200000", "1 to 163840"}},
      {"deepseek-v3.2", "index_topk", -1, {"index_topk", "-1"}},
      {"deepseek-v3.2", "index_n_heads", 0, {"index_n_heads", "is 0", "positive"}},
      {"deepseek-v3.2", "index_head_dim", 32, {"index_head_dim is 32", "64 to", "qk_rope_head_dim"}},
      {"deepseek-v3.2", "q_lora_rank", nullptr, {"q_lora_rank", "null", "indexer"}},
      {"deepseek-v3.2", "indexer_rope_interleave", true, {"indexer_rope_interleave", "true", "false"}},
      {"deepseek-v3.2", "rope_interleave", false, {"rope_interleave", "false", "true"}},
      {"glm-5", "indexer_rope_interleave", false, {"indexer_rope_interleave", "false", "true"}},
      {"glm-5", "indexer_types", first_shared, {"indexer_types", "\"shared\" for layer 0", "\"full\""}},
      {"glm-5", "indexer_types", unknown, {"indexer_types", "\"half\" for layer 5", "shared"}},
      {"glm-5", "indexer_types", short_list, {"indexer_types", "77 entries", "78 layers"}},
      {"glm-5", "mlp_layer_types", dense_late, {"mlp_layer_types", "\"dense\" for layer 3", "first layers"}},
  };
  for (const Wrong& one : all) {
    Json config = file_of_preset(one.preset);
    EXPECT_EQ(refusal_of(config), "") << one.preset;
    config[one.key] = one.value;
    const std::string message = refusal_of(config);
    for (const char* part : one.named)
      EXPECT_NE(message.find(part), std::string::npos) << one.preset << " " << one.key << ": " << message;
  }
}

// As transformers' class derives them.
TEST(SparseConfig, LayersShareByListByPatternOrByPeriod) {
  Json config = file_of_preset("glm-5");
  EXPECT_EQ(shared_layers(config), std::vector<bool>(78, false));
  config["num_hidden_layers"] = 8;
  config.erase("indexer_types");
  EXPECT_EQ(shared_layers(config), std::vector<bool>(8, false));
  config["index_topk_freq"] = 4;  // GLM-5.2
  config["index_skip_topk_offset"] = 3;
  EXPECT_EQ(shared_layers(config), (std::vector<bool>{false, false, false, true, true, true, false, true}));
  config["index_topk_pattern"] = "FSSFSSFF";
  EXPECT_EQ(shared_layers(config), (std::vector<bool>{false, true, true, false, true, true, false, false}));
  config["index_topk_pattern"] = "FSSFXSFF";
  EXPECT_NE(refusal_of(config).find("\"X\""), std::string::npos) << refusal_of(config);
  config["indexer_types"] = {"full", "shared", "full", "full", "full", "full", "full", "shared"};
  EXPECT_EQ(shared_layers(config), (std::vector<bool>{false, true, false, false, false, false, false, true}));
}

// mlp_layer_types precedes first_k_dense_replace, as in the classes.
TEST(SparseConfig, DenseLayersAreTheFirstOnesOfTheList) {
  Json config = file_of_preset("deepseek-v3.2");
  config["num_hidden_layers"] = 5;
  EXPECT_EQ(read_config_json(dump_json(config), "config.json").experts.first, 3);
  config["mlp_layer_types"] = {"dense", "sparse", "sparse", "sparse", "sparse"};
  EXPECT_EQ(read_config_json(dump_json(config), "config.json").experts.first, 1);
  config["mlp_layer_types"] = {"dense", "dense", "dense", "dense", "dense"};
  EXPECT_EQ(read_config_json(dump_json(config), "config.json").experts.count, 0);
}

// Counted from the classes in transformers, with routers' biases, without further tokens' modules.
TEST(SparseConfig, PresetsHaveThePublishedSizes) {
  EXPECT_EQ(parameter_count(preset("deepseek-v3.2")), 671'877'944'064);
  EXPECT_EQ(parameter_count(preset("glm-5")), 743'911'218'432);
  const auto small = static_cast<double>(parameter_count(preset("dsa-30m")));
  EXPECT_GT(small, 25e6);
  EXPECT_LT(small, 35e6);
}

}  // namespace
}  // namespace strata::models
