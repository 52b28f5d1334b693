// config.json of hybrids: fields that are refused, by which message, and published sizes.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/model.h"

namespace strata::models {
namespace {

using Json = nlohmann::json;

Json file_of(const char* model) {
  return parse_json<Json>(read_file(Path(STRATA_GOLDEN_MODELS) / model / "config.json"));
}

// Why `config` is refused, or nothing.
std::string refusal(const Json& config) {
  try {
    const std::vector<std::string> errors = errors_of(read_config_json(dump_json(config), "config.json"));
    return errors.empty() ? "" : errors.front();
  } catch (const Error& error) {
    return error.what();
  }
}

struct WrongField {
  const char* model;
  const char* key;
  Json value;
  std::vector<const char*> named;  // parts of the message
};

TEST(HybridConfig, RefusesWhatCannotBe) {
  const Json delta = "linear_attention", full = "full_attention";
  const WrongField all[] = {
      {"qwen3-next", "layer_types", Json::array({delta, full}), {"layer_types", "2", "3 layers"}},
      {"olmo-hybrid",
       "layer_types",
       Json::array({delta, full, delta, full}),
       {"layer_types", "4", "3 layers"}},
      {"qwen3-next",
       "layer_types",
       Json::array({delta, "mamba3", delta}),
       {"\"mamba3\"", "layer 1", "linear_attention"}},
      {"kimi-linear", "layer_types", Json::array({delta, "sliding", delta}), {"\"sliding\"", "layer 1"}},
      {"granite-hybrid",
       "layer_types",
       Json::array({"mamba", "conv", "mamba"}),
       {"\"conv\"", "layer 1", "mamba"}},
      {"lfm2-moe", "layer_types", Json::array({"conv", "mamba", "conv"}), {"\"mamba\"", "layer 1", "conv"}},
      {"nemotron-h", "layers_block_type", Json::array({"mamba", "convolution"}), {"convolution"}},
      {"qwen3-next", "linear_num_value_heads", 3, {"3 value heads", "2 key heads", "expected 4"}},
      {"olmo-hybrid", "linear_num_value_heads", 5, {"5 value heads", "2 key heads", "expected 6"}},
      {"qwen3-5", "linear_num_value_heads", 3, {"3 value heads", "2 key heads", "expected 4"}},
      {"qwen3-5-moe", "linear_num_key_heads", 0, {"linear_num_key_heads", "is 0:", "positive"}},
      {"mamba2", "n_groups", 4, {"6 heads", "4 groups", "expected 8"}},
      {"nemotron-h", "n_groups", 4, {"6 heads", "4 groups", "expected 8"}},
      {"granite-hybrid", "mamba_n_groups", 4, {"6 heads", "4 groups", "expected 8"}},
      {"falcon-h1", "mamba_n_groups", 4, {"6 heads", "4 groups", "expected 8"}},
      {"qwen3-next", "linear_conv_kernel_dim", 0, {"linear_conv_kernel_dim", "is 0:", "positive"}},
      {"olmo-hybrid", "linear_conv_kernel_dim", -1, {"linear_conv_kernel_dim", "is -1:", "positive"}},
      {"mamba2", "conv_kernel", 0, {"conv_kernel", "is 0:", "positive"}},
      {"falcon-h1", "mamba_d_conv", 0, {"mamba_d_conv", "is 0:", "positive"}},
      {"lfm2-moe", "conv_L_cache", 0, {"conv_L_cache", "is 0:", "positive"}},
      {"mamba2", "time_step_limit", Json::array({0.5, 0.1}), {"0.5", "0.1", "smaller one first"}},
      {"granite-hybrid", "time_step_limit", Json::array({0.5, 0.1}), {"0.5", "0.1", "smaller one first"}},
      {"mamba2", "time_step_min", 0.5, {"0.5", "0.1", "smaller one first"}},
      {"nemotron-h", "time_step_min", 0.5, {"0.5", "0.1", "smaller one first"}},
      {"mamba2", "time_step_limit", Json::array({0.5}), {"time_step_limit"}},
      {"mamba2", "state_size", 0, {"state_size", "is 0:", "positive"}},
      {"kimi-linear", "linear_head_dim", 0, {"linear_head_dim", "is 0:", "positive"}}};
  for (const WrongField& one : all) {
    Json config = file_of(one.model);
    ASSERT_TRUE(config.contains(one.key)) << one.model << " " << one.key;
    EXPECT_EQ(refusal(config), "") << one.model;
    config[one.key] = one.value;
    const std::string message = refusal(config);
    for (const char* part : one.named)
      EXPECT_NE(message.find(part), std::string::npos)
          << one.model << " " << one.key << " = " << dump_json(one.value) << ": " << message;
  }
}

// Nemotron-H's older files have a text with a letter for each layer.
TEST(HybridConfig, NamesAnUnknownLetterOfAPattern) {
  Json config = file_of("nemotron-h");
  config.erase("layers_block_type");
  config["hybrid_override_pattern"] = "M-*EM";
  EXPECT_EQ(refusal(config), "");
  config["hybrid_override_pattern"] = "M-*QM";
  const std::string message = refusal(config);
  for (const char* part : {"hybrid_override_pattern", "Q", "M"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

// Counted from the classes in transformers, without further tokens' modules and vision; GDN-1B: from Primus.
TEST(HybridConfig, PresetsHaveThePublishedSizes) {
  const std::pair<const char*, int64_t> published[] = {{"qwen3-next-80b-a3b", 79'674'391'296},
                                                       {"qwen3.5-9b", 8'953'803'264},
                                                       {"qwen3.5-27b", 26'895'998'464},
                                                       {"qwen3.5-35b-a3b", 34'660'610'688},
                                                       {"olmo-hybrid-7b", 7'430'870'688},
                                                       {"gdn-1b", 1'203'441'152},
                                                       {"mamba2-130m", 128'989'632},
                                                       {"mamba2-370m", 368'346'624},
                                                       {"mamba2-780m", 780'161'280},
                                                       {"mamba2-1.3b", 1'343'757'312},
                                                       {"mamba2-2.7b", 2'702'599'680},
                                                       {"nemotron-3-nano-30b-a3b", 31'577'940'288},
                                                       {"granite-4.0-h-tiny", 6'939'037'248},
                                                       {"falcon-h1-0.5b", 521'411'104},
                                                       {"olmo3-7b", 7'298'011'136},
                                                       {"olmo3-32b", 32'233'522'176},
                                                       {"smollm3-3b", 3'075'098'624},
                                                       {"minimax-m2", 228'689'764'864},
                                                       {"lfm2-8b-a1b", 8'339'930'560}};
  for (const auto& [name, count] : published) EXPECT_EQ(parameter_count(preset(name)), count) << name;
  const std::pair<const char*, double> active[] = {{"qwen3-next-80b-a3b", 3.88},
                                                   {"qwen3.5-35b-a3b", 3.46},
                                                   {"nemotron-3-nano-30b-a3b", 3.58},
                                                   {"granite-4.0-h-tiny", 1.47}};
  for (const auto& [name, billions] : active)
    EXPECT_NEAR(static_cast<double>(active_parameter_count(preset(name))) / 1e9, billions, 6e-3) << name;
}

}  // namespace
}  // namespace strata::models
