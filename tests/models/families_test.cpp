// Reading and writing config.json in each family, and refusals.
#include <gtest/gtest.h>

#include <cmath>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/model.h"

namespace strata::models {
namespace {

using Json = nlohmann::json;

// The config.json files that transformers wrote for the golden models.
std::vector<Path> golden_configs() {
  std::vector<Path> configs;
  for (const auto& entry : std::filesystem::directory_iterator(STRATA_GOLDEN_MODELS)) {
    if (entry.is_directory()) configs.push_back(entry.path() / "config.json");
  }
  return configs;
}

std::string message_of(const Json& config) {
  try {
    read_config_json(dump_json(config), "config.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

Json golden(const char* name) {
  return parse_json<Json>(read_file(Path(STRATA_GOLDEN_MODELS) / name / "config.json"));
}

TEST(Families, EveryOneHasAGoldenModelAndAPreset) {
  std::vector<std::string_view> seen;
  for (const Path& path : golden_configs())
    seen.push_back(read_config_json(read_file(path), path.string()).family->name);
  for (const Family* family : families()) {
    if (family->name == "kimi-k2") continue;  // DeepSeek-V3 under another name
    EXPECT_NE(std::find(seen.begin(), seen.end(), family->name), seen.end()) << family->name;
    EXPECT_EQ(smallest_preset(*family).family, family);
  }
}

TEST(Families, KimiK2IsDeepSeekV3UnderAnotherName) {
  Json config = golden("deepseek-v3-moe");
  const ModelConfig theirs = read_config_json(dump_json(config), "");
  config["model_type"] = "kimi_k2";
  const ModelConfig ours = read_config_json(dump_json(config), "");
  EXPECT_EQ(ours.family->name, "kimi-k2");
  EXPECT_EQ(parameter_shapes(ours), parameter_shapes(theirs));
  Json written = parse_json<Json>(write_config_json(ours, DType::kF32));
  EXPECT_EQ(written["model_type"], "kimi_k2");
  written["model_type"] = "deepseek_v3";
  EXPECT_EQ(written, parse_json<Json>(write_config_json(theirs, DType::kF32)));
}

TEST(Families, WriteWhatTheyRead) {
  for (const Path& path : golden_configs()) {
    const ModelConfig config = read_config_json(read_file(path), path.string());
    const std::string written = config.family->write(config, DType::kBF16);
    const ModelConfig again = read_config_json(written, path.string());
    EXPECT_EQ(again.family->write(again, DType::kBF16), written) << path;
    EXPECT_EQ(parameter_count(again), parameter_count(config)) << path;
    EXPECT_EQ(again.rope.attention_factor, config.rope.attention_factor) << path;
    for (int64_t i = 0; i < config.layers; ++i)
      EXPECT_EQ(again.sliding_window.at(i), config.sliding_window.at(i)) << path << " layer " << i;
  }
}

TEST(Families, PresetsSurviveWritingAndReading) {
  for (const Preset& preset : presets()) {
    const ModelConfig& config = preset.config;
    EXPECT_EQ(errors_of(config), std::vector<std::string>{}) << preset.name;
    const std::string written = config.family->write(config, DType::kF32);
    const ModelConfig again = read_config_json(written, std::string(preset.name));
    EXPECT_EQ(again.family->write(again, DType::kF32), written) << preset.name;
    EXPECT_EQ(again.init, config.init) << preset.name;
    EXPECT_EQ(parameter_count(again), parameter_count(config)) << preset.name;
  }
}

// Total parameters of the published models, in millions.
TEST(Families, PresetsHaveThePublishedSizes) {
  const std::pair<const char*, double> published[] = {{"gpt2-124m", 124.439808},
                                                      {"gpt2-355m", 354.823168},
                                                      {"gpt2-774m", 774.030080},
                                                      {"gpt2-1.5b", 1557.611200},
                                                      {"llama-7b", 6738.415616},
                                                      {"llama-13b", 13015.864320},
                                                      {"llama-33b", 32528.943616},
                                                      {"llama-65b", 65285.660672},
                                                      {"llama2-7b", 6738.415616},
                                                      {"llama2-13b", 13015.864320},
                                                      {"llama2-70b", 68976.648192},
                                                      {"llama3-8b", 8030.261248},
                                                      {"llama3.1-70b", 70553.706496},
                                                      {"llama3.1-405b", 405853.388800},
                                                      {"llama3.2-1b", 1235.814400},
                                                      {"llama3.2-3b", 3212.749824},
                                                      {"smollm-135m", 134.515008},
                                                      {"smollm-360m", 361.821120},
                                                      {"smollm-1.7b", 1711.376384},
                                                      {"mistral-7b", 7241.732096},
                                                      {"mistral-7b-v0.3", 7248.023552},
                                                      {"mistral-nemo-12b", 12247.782400},
                                                      {"mistral-small-24b", 23572.403200},
                                                      {"qwen2-0.5b", 494.032768},
                                                      {"qwen2-1.5b", 1543.714304},
                                                      {"qwen2-7b", 7615.616512},
                                                      {"qwen2-72b", 72706.203648},
                                                      {"qwen2.5-3b", 3085.938688},
                                                      {"qwen2.5-14b", 14770.033664},
                                                      {"qwen2.5-32b", 32763.876352},
                                                      {"qwen3-0.6b", 596.049920},
                                                      {"qwen3-1.7b", 1720.574976},
                                                      {"qwen3-4b", 4022.468096},
                                                      {"qwen3-8b", 8190.735360},
                                                      {"qwen3-14b", 14768.307200},
                                                      {"qwen3-32b", 32762.123264},
                                                      {"mixtral-8x7b", 46702.792704},
                                                      {"mixtral-8x22b", 140630.071296},
                                                      {"qwen1.5-moe-a2.7b", 14315.784192},
                                                      {"qwen2-57b-a14b", 57408.658944},
                                                      {"qwen3-30b-a3b", 30532.122624},
                                                      {"qwen3-235b-a22b", 235093.634560},
                                                      {"olmoe-1b-7b", 6919.161856},
                                                      {"deepseek-v2-lite", 15706.484224},
                                                      {"deepseek-v2", 235741.434880},
                                                      {"moonlight-16b-a3b", 15960.110208},
                                                      {"deepseek-v3", 671026.419200},
                                                      {"kimi-k2", 1026408.232448},
                                                      {"glm-4.5-air", 106852.251264},
                                                      {"glm-4.5", 352797.829024},
                                                      {"gpt-oss-20b", 20914.757184},
                                                      {"gpt-oss-120b", 116829.156672},
                                                      {"llama4-scout", 107769.861120},
                                                      {"llama4-maverick", 400711.848960},
                                                      {"olmo-1b", 1176.764416},
                                                      {"olmo-7b", 6888.095744},
                                                      {"olmo-7b-0424", 6888.095744},
                                                      {"olmo2-1b", 1484.916736},
                                                      {"olmo2-7b", 7298.617344},
                                                      {"olmo2-13b", 13716.198400},
                                                      {"olmo2-32b", 32234.279936},
                                                      {"olmo3-7b", 7298.011136},
                                                      {"olmo3-32b", 32233.522176},
                                                      {"smollm3-3b", 3075.098624},
                                                      {"minimax-m2", 228689.764864},
                                                      {"gemma2-2b", 2614.341888},
                                                      {"gemma2-9b", 9241.705984},
                                                      {"gemma2-27b", 27227.128320},
                                                      {"gemma3-270m", 268.098176},
                                                      {"gemma3-1b", 999.885952},
                                                      {"phi3-mini", 3821.079552},
                                                      {"phi3-medium", 13960.238080},
                                                      {"phi3-mini-128k", 3821.079552},
                                                      {"phi3.5-mini", 3821.079552},
                                                      {"phi4", 14659.507200},
                                                      {"pythia-14m", 14.067712},
                                                      {"pythia-31m", 30.494720},
                                                      {"pythia-70m", 70.426624},
                                                      {"pythia-160m", 162.322944},
                                                      {"pythia-410m", 405.334016},
                                                      {"pythia-1b", 1011.781632},
                                                      {"pythia-1.4b", 1414.647808},
                                                      {"pythia-2.8b", 2775.208960},
                                                      {"pythia-6.9b", 6857.302016},
                                                      {"pythia-12b", 11846.072320},
                                                      {"gpt-neox-20b", 20554.567680},
                                                      {"starcoder2-3b", 3030.371328},
                                                      {"starcoder2-7b", 7173.923840},
                                                      {"starcoder2-15b", 15957.889024},
                                                      {"stablelm-3b", 2795.443200},
                                                      {"stablelm2-1.6b", 1644.515328},
                                                      {"bert-base", 109.514298},
                                                      {"bert-large", 335.174458},
                                                      {"t5-small", 60.506624},
                                                      {"t5-base", 222.903552},
                                                      {"t5-large", 737.668096},
                                                      {"t5-3b", 2851.598336},
                                                      {"t5-11b", 11307.321344},
                                                      {"t5-v1.1-small", 76.961152},
                                                      {"t5-v1.1-base", 247.577856},
                                                      {"t5-v1.1-large", 783.150080},
                                                      {"t5-v1.1-xl", 2849.757184},
                                                      {"t5-v1.1-xxl", 11135.332352}};
  for (const auto& [name, millions] : published)
    EXPECT_NEAR(static_cast<double>(parameter_count(preset(name))) / 1e6, millions, 1e-6) << name;
}

// Active parameters per token, in billions, including embedding and head.
TEST(Families, ExpertsHaveThePublishedActiveSizes) {
  const std::pair<const char*, double> published[] = {{"mixtral-8x7b", 12.880},
                                                      {"qwen3-30b-a3b", 3.353},
                                                      {"qwen3-235b-a22b", 22.191},
                                                      {"deepseek-v2-lite", 2.661},
                                                      {"moonlight-16b-a3b", 2.915},
                                                      {"deepseek-v3", 37.552},
                                                      {"kimi-k2", 32.9},
                                                      {"moe-30m-a10m", 0.010},
                                                      {"llama4-scout", 17.17},
                                                      {"llama4-maverick", 17.19},
                                                      {"llama4-50m", 0.016},
                                                      // Published without the embedding of 0.579.
                                                      {"gpt-oss-20b", 3.61 + 0.579},
                                                      {"gpt-oss-120b", 5.13 + 0.579}};
  for (const auto& [name, billions] : published) {
    const double found = static_cast<double>(active_parameter_count(preset(name))) / 1e9;
    EXPECT_NEAR(found, billions, std::max(6e-4, 2e-3 * billions)) << name;
  }
  EXPECT_EQ(active_parameter_count(preset("llama3-29m")), parameter_count(preset("llama3-29m")));
}

// DeepSeek-V3's module has 11.6 billion parameters, 2.4 billion of them active including the shared embedding
// and head. Its additional FLOPs per token are compared with the published 2.50e11 and 2.60e11 at 4,096
// tokens.
TEST(Families, FurtherTokensHaveThePublishedCost) {
  const ModelConfig without = preset("deepseek-v3");
  const ModelConfig with = with_overrides(without, {{"num_nextn_predict_layers", "1"}}, "test");
  ASSERT_EQ(with.predict_layers, 1);
  const auto more = [&](int64_t (*count)(const ModelConfig&)) {
    return static_cast<double>(count(with) - count(without)) / 1e9;
  };
  EXPECT_NEAR(more(parameter_count), 11.61, 5e-3);
  EXPECT_NEAR(more(active_parameter_count) + 2 * 129280 * 7168 / 1e9, 2.4, 0.15);
  EXPECT_NEAR(training_flops_per_token(without, 4096), 2.50e11, 1e-2 * 2.50e11);
  EXPECT_NEAR(training_flops_per_token(with, 4096), 2.60e11, 2e-2 * 2.60e11);
}

TEST(Families, SuggestsTheNearestTypeForAnUnknownOne) {
  Json config = golden("qwen3");
  config["model_type"] = "qwen4";
  const std::string message = message_of(config);
  EXPECT_NE(message.find("\"qwen4\" is not known"), std::string::npos) << message;
  EXPECT_NE(message.find("gemma3_text"), std::string::npos) << message;
  EXPECT_NE(message.find("Nearest is \"qwen"), std::string::npos) << message;
}

struct Refused {
  const char* model;
  const char* key;
  Json value;
};

TEST(Families, RefusesFieldsThatChangeTheComputation) {
  const Refused all[] = {
      {"llama-tied", "pretraining_tp", 2},
      {"llama-tied", "hidden_act", "mish"},
      {"llama-tied", "rope_parameters", Json{{"rope_type", "spiral"}, {"factor", 2}}},
      {"gemma2", "use_bidirectional_attention", true},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true},
      {"starcoder2", "mlp_type", "gated"},
      {"stablelm", "use_parallel_residual", true},
      {"stablelm", "qk_layernorm", true},
      {"smollm3", "no_rope_layers", Json::array({1, 0})},
      {"smollm3-windows", "layer_types", Json::array({"sliding_attention"})},
      {"olmo3", "layer_types", Json::array({"full_attention"})},
      {"olmo3", "sliding_window", Json()},
      {"minimax-m2", "use_qk_norm", false},
      {"minimax-m2", "qk_norm_type", "per_head"},
      {"minimax-m2", "scoring_func", "softmax"},
      {"minimax-m2", "use_routing_bias", false},
      {"minimax-m2", "shared_intermediate_size", 14},
      {"qwen2", "layer_types", Json::array({"full_attention"})},
      {"qwen2", "layer_types", Json::array({"full_attention", "linear_attention"})},
      {"qwen3", "layer_types", Json::array({"full_attention", "sliding_attention"})},
      {"gpt-neox", "rotary_pct", 1.5},
      {"deepseek-v3-moe", "scoring_func", "softmax"},
      {"deepseek-v2-moe", "topk_method", "noaux_tc"},
      {"deepseek-v2-moe", "norm_topk_prob", true},
      {"qwen2-moe", "use_sliding_window", true},
      {"qwen3-moe", "mlp_only_layers", "none"},
      {"llama4", "no_rope_layers", Json::array({1, 0})},
      {"llama4", "moe_layers", Json::array({9})},
      {"llama4", "layer_types",
       Json::array({"full_attention", "chunked_attention", "full_attention", "chunked_attention"})},
      {"gpt-oss", "hidden_act", "gelu"},
      {"deepseek-v3", "num_key_value_heads", 1},
      {"deepseek-v2", "kv_lora_rank", 0}};
  for (const Refused& one : all) {
    Json config = golden(one.model);
    config[one.key] = one.value;
    if (std::string_view(one.key) == "rotary_pct") config.erase("rope_parameters");
    const std::string message = message_of(config);
    const std::string named = std::string_view(one.key) == "rope_parameters" ? "rope scaling" : one.key;
    EXPECT_NE(message.find(named), std::string::npos) << one.model << " " << one.key << ": " << message;
  }
}

// Dropout is not used here, but preserved for training the model elsewhere.
TEST(Families, PreservesDropoutForOtherPrograms) {
  const std::pair<const char*, std::vector<const char*>> all[] = {
      {"llama-tied", {"attention_dropout"}},
      {"phi3", {"attention_dropout", "resid_pdrop", "embd_pdrop"}},
      {"gpt-neox", {"attention_dropout", "hidden_dropout", "classifier_dropout"}},
      {"gpt2", {"attn_pdrop", "resid_pdrop", "embd_pdrop", "summary_first_dropout"}},
      {"starcoder2", {"attention_dropout", "residual_dropout", "embedding_dropout"}},
      {"stablelm", {"hidden_dropout"}},
      {"bert", {"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"}},
      {"t5", {"dropout_rate", "classifier_dropout"}}};
  for (const auto& [name, keys] : all) {
    Json config = golden(name);
    for (auto& [key, value] : config.items())
      if (key.find("dropout") != key.npos || key.ends_with("_pdrop")) value = 0.0;
    EXPECT_TRUE(read_config_json(dump_json(config), name).dropout.empty()) << name;
    for (const char* key : keys) config[key] = 0.25;
    const ModelConfig read = read_config_json(dump_json(config), name);
    EXPECT_EQ(read.dropout.size(), keys.size()) << name;
    const std::string written = write_config_json(read, DType::kBF16);
    for (const char* key : keys) EXPECT_EQ(parse_json<Json>(written)[key], 0.25) << name << " " << key;
    EXPECT_EQ(write_config_json(read_config_json(written, name), DType::kBF16), written) << name;
    // An override changes one key and no others.
    const ModelConfig changed = with_overrides(read, {{keys[0], "0.5"}}, name);
    EXPECT_EQ(parse_json<Json>(write_config_json(changed, DType::kF32))[keys[0]], 0.5) << name;
    EXPECT_EQ(changed.dropout.size(), keys.size()) << name;
  }
  Json wrong = golden("gpt2");
  wrong["attn_pdrop"] = "much";
  EXPECT_NE(message_of(wrong).find("attn_pdrop"), std::string::npos);
  wrong["attn_pdrop"] = 1.5;
  EXPECT_NE(message_of(wrong).find("attn_pdrop"), std::string::npos);
}

// The checks of transformers' configuration classes: a model that it cannot load is of little use.
TEST(Families, KnowsWhatTransformersRefuses) {
  for (const Preset& preset : presets())
    EXPECT_EQ(transformers_errors(preset.config), std::vector<std::string>{}) << preset.name;
  for (const Path& path : golden_configs())
    EXPECT_TRUE(transformers_errors(read_config_json(read_file(path), path.string())).empty()) << path;
  const auto changed = [](const char* family, const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = smallest_preset(*find_family(family));
    change(config);
    EXPECT_TRUE(errors_of(config).empty()) << family;
    return transformers_errors(config).size();
  };
  for (const char* family : {"llama3", "gemma2", "gemma3", "deepseek2"})
    EXPECT_EQ(changed(family, [](ModelConfig& config) { ++config.hidden_size; }), 1u) << family;
  for (const char* family : {"qwen3", "mistral", "deepseek3"})
    EXPECT_EQ(changed(family, [](ModelConfig& config) { ++config.hidden_size; }), 0u) << family;
  EXPECT_EQ(changed("gemma2", [](ModelConfig& config) { config.attention_scalar = 60.5; }), 1u);
  EXPECT_EQ(changed("llama3", [](ModelConfig& config) { config.init_std = 1.5; }), 1u);
  EXPECT_EQ(
      changed("phi3", [](ModelConfig& config) { config.rope.kind = ops::RopeScaling::Kind::kInterpolated; }),
      1u);
}

TEST(Families, TheWidthIsAMultipleOfTheHeadsWithoutAHeadSize) {
  for (const Family* family : families()) {
    ModelConfig config = smallest_preset(*family);
    if (family->size_keys.head_dim != nullptr || config.latent) continue;
    ++config.hidden_size;
    ASSERT_FALSE(errors_of(config).empty()) << family->name;
    EXPECT_NE(errors_of(config)[0].find("is not a multiple of"), std::string::npos) << family->name;
  }
}

TEST(Families, WritesScaledRotationOfWindows) {
  Json gemma = golden("gemma3");
  gemma["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "linear"}, {"factor", 3.0}, {"rope_theta", 2e4}}}};
  const ModelConfig config = read_config_json(dump_json(gemma), "");
  const ModelConfig again = read_config_json(config.family->write(config, DType::kF32), "");
  EXPECT_EQ(again.window_rope->kind, ops::RopeScaling::Kind::kInterpolated);
  EXPECT_EQ(again.window_rope->factor, 3.0);
  EXPECT_EQ(again.window_rope->theta, 2e4);
  EXPECT_EQ(again.rope.kind, ops::RopeScaling::Kind::kUnscaled);
  EXPECT_EQ(again.rope.theta, 1e6);
}

TEST(Families, WindowsFollowTheRuleOfTheFamily) {
  const auto windowed = [](const ModelConfig& config, int64_t layers) {
    std::string text;
    for (int64_t i = 0; i < layers; ++i) text += config.sliding_window.at(i) ? 'w' : '.';
    return text;
  };
  Json gemma = golden("gemma3");
  gemma["num_hidden_layers"] = 12;
  gemma.erase("layer_types");
  EXPECT_EQ(windowed(read_config_json(dump_json(gemma), ""), 12), "wwwww.wwwww.");
  Json gemma2 = golden("gemma2");
  gemma2.erase("layer_types");
  EXPECT_EQ(windowed(read_config_json(dump_json(gemma2), ""), 2), "w.");
  Json qwen = golden("qwen2");
  qwen["num_hidden_layers"] = 4;
  qwen["max_window_layers"] = 3;
  qwen.erase("layer_types");
  EXPECT_EQ(windowed(read_config_json(dump_json(qwen), ""), 4), "...w");
  qwen["use_sliding_window"] = false;
  EXPECT_EQ(windowed(read_config_json(dump_json(qwen), ""), 4), "....");
  const ModelConfig mistral = read_config_json(dump_json(golden("mistral")), "");
  EXPECT_EQ(windowed(mistral, 2), "ww");
  // The rule is applied to the new number of layers.
  const ModelConfig more = with_overrides(read_config_json(dump_json(golden("gemma3")), ""),
                                          {{"num_hidden_layers", "7"}}, "model.override");
  EXPECT_EQ(windowed(more, 7), "wwwww.w");
}

TEST(Families, OverridesTakeTablesAndLists) {
  const ModelConfig llama = read_config_json(dump_json(golden("llama-tied")), "");
  const ModelConfig scaled = with_overrides(
      llama, {{"rope_scaling", R"({"rope_type": "linear", "factor": 4.0})"}, {"eos_token_id", "[3, 4]"}},
      "here");
  EXPECT_EQ(scaled.rope.kind, ops::RopeScaling::Kind::kInterpolated);
  EXPECT_EQ(scaled.rope.factor, 4);
  EXPECT_EQ(scaled.eos_id, 3);
  EXPECT_EQ(scaled.more_eos_ids, std::vector<int64_t>{4});
  EXPECT_EQ(scaled.stop_ids(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(parse_json<nlohmann::json>(write_config_json(scaled, DType::kF32))["eos_token_id"],
            (nlohmann::json{3, 4}));
  const ModelConfig gemma = with_overrides(
      read_config_json(dump_json(golden("gemma3")), ""),
      {{"num_hidden_layers", "2"}, {"layer_types", R"(["full_attention", "sliding_attention"])"}}, "here");
  EXPECT_TRUE(gemma.sliding_window.at(1) && !gemma.sliding_window.at(0));
}

TEST(Families, ReadsEndTokensOfAMultimodalModel) {
  auto text = golden("llama4");
  for (const char* key : {"bos_token_id", "eos_token_id"}) text.erase(key);
  const auto read = [&](nlohmann::json whole) {
    whole["model_type"] = "llama4";
    whole["text_config"] = text;
    return read_config_json(dump_json(whole), "");
  };
  const ModelConfig of_whole = read({{"bos_token_id", 2}, {"eos_token_id", {3, 4}}});
  EXPECT_EQ(of_whole.bos_id, 2);
  EXPECT_EQ(of_whole.stop_ids(), (std::vector<int64_t>{3, 4}));
  text["eos_token_id"] = {5, 6};
  EXPECT_EQ(read({{"eos_token_id", 3}}).stop_ids(), (std::vector<int64_t>{5, 6}));
}

// A field that the family's reader does not use would be ignored.
TEST(Families, RefusesOverridesThatAreNotRead) {
  const ModelConfig llama = read_config_json(dump_json(golden("llama-tied")), "");
  const auto message_for = [&](const std::string& key, const std::string& value) {
    try {
      with_overrides(llama, {{key, value}}, "here");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message_for("hiden_size", "64").find("did you mean \"hidden_size\"?"), std::string::npos);
  EXPECT_NE(message_for("use_cache", "false")
                .find("model.override.use_cache: a llama config.json has no such field"),
            std::string::npos);
  EXPECT_NE(message_for("torch_dtype", "\"float16\"").find("torch_dtype"), std::string::npos);
  EXPECT_NE(message_for("rope_scaling", R"({"rope_type": "linear", "faktor": 2.0})")
                .find("did you mean \"factor\"?"),
            std::string::npos);
  EXPECT_NE(message_for("hidden_size", "\"wide\"").find("positive integer"), std::string::npos);
  EXPECT_NE(message_for("hidden_size", "9223372036854775807").find("at most 2147483647"), std::string::npos);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"hidden_act", "\"swish\""},
                                                        {"hidden_act", "\"relu2\""},
                                                        {"rms_norm_eps", "1e-6"},
                                                        {"pad_token_id", "1"},
                                                        {"attention_bias", "true"}})
    EXPECT_EQ(message_for(key, value), "") << key;
}

TEST(Families, ImpossibleSizesAreErrors) {
  const auto error_of = [](auto change) {
    ModelConfig config = read_config_json(dump_json(golden("llama-tied")), "");
    change(config);
    const auto errors = errors_of(config);
    return errors.empty() ? std::string() : errors.front();
  };
  EXPECT_EQ(error_of([](ModelConfig&) {}), "");
  EXPECT_EQ(error_of([](ModelConfig& c) { c.layers = 1000000000; }),
            "the number of layers is 1000000000: expected at most 4096");
  EXPECT_EQ(error_of([](ModelConfig& c) { c.vocab_size = int64_t{1} << 62; }),
            "the vocabulary size is 4.6e+18: expected at most 2147483647");
  EXPECT_NE(error_of([](ModelConfig& c) { c.intermediate_size = int64_t{1} << 34; }), "");
  EXPECT_NE(error_of([](ModelConfig& c) { c.hidden_size = int64_t{1} << 40; }), "");
  EXPECT_NE(error_of([](ModelConfig& c) { c.heads = int64_t{1} << 40; }), "");
  EXPECT_NE(error_of([](ModelConfig& c) { c.norm_eps = -1; }), "");
  EXPECT_NE(error_of([](ModelConfig& c) { c.norm_eps = std::nan(""); }), "");
  EXPECT_NE(error_of([](ModelConfig& c) { c.rope.theta = 1e300; }), "");
  // Every preset is valid.
  for (const Preset& preset : presets()) EXPECT_TRUE(errors_of(preset.config).empty()) << preset.name;
  EXPECT_THROW(read_config_json(R"({"model_type": "llama", "rms_norm_eps": 1e999})", "c"), DataError);
}

TEST(Families, WindowsCostAsMuchAsTheirKeys) {
  ModelConfig config = read_config_json(dump_json(golden("mistral")), "");
  const double with = training_flops_per_token(config, 64);
  config.sliding_window.size = 0;
  const double without = training_flops_per_token(config, 64);
  // At most 7 keys per token instead of half of 64: 12 operations per key, dimension and layer.
  const double keys = 7 * (1 - 7 / 128.0) - 32;
  EXPECT_NEAR(with - without, 12 * keys * static_cast<double>(config.q_width() * config.layers), 1e-6);
}

// The head of a masked model sees only the tokens to predict.
TEST(Families, TokensWithoutTargetsDoNotReachTheHead) {
  const ModelConfig config = read_config_json(dump_json(golden("bert")), "");
  const double all = training_flops_per_token(config, 64, 64),
               some = training_flops_per_token(config, 64, 64, 0.15);
  EXPECT_NEAR(all - some, 0.85 * 6 * static_cast<double>(config.vocab_size * config.hidden_size), 1e-6);
}

// A head's keys and values differ in size, and from the size of its latent.
TEST(Families, LatentAttentionCostsItsMatmulsAndItsHeads) {
  const ModelConfig config = read_config_json(dump_json(golden("deepseek-v3")), "");
  const double of_attention = training_flops_per_token(config, 64) - training_flops_per_token(config, 32);
  // 16 keys more, in two layers with three heads: 6 operations for each of 16 + 8 dimensions.
  EXPECT_NEAR(of_attention, 16 * 2 * 3 * 6 * (16 + 8), 1e-6);
  const int64_t attention = 24 * (14 + 18 + 6) + 14 * 3 * 16 + 18 * 3 * (10 + 8) + 3 * 8 * 24;
  const int64_t matrices = 2 * (attention + 3 * 24 * 34) + 61 * 24;
  EXPECT_NEAR(2 * training_flops_per_token(config, 32) - training_flops_per_token(config, 64),
              6.0 * static_cast<double>(matrices), 1e-6);
}

TEST(Families, SizesOfLatentsHaveLimits) {
  const auto error_of = [](auto change) {
    ModelConfig config = read_config_json(dump_json(golden("deepseek-v3")), "");
    change(config);
    const auto errors = errors_of(config);
    return errors.empty() ? std::string() : errors.front();
  };
  EXPECT_EQ(error_of([](ModelConfig&) {}), "");
  EXPECT_NE(error_of([](ModelConfig& c) { c.latent->rank = 2000; }).find("the rank"), std::string::npos);
  EXPECT_NE(error_of([](ModelConfig& c) { c.latent->value_dim = 300; }).find("values"), std::string::npos);
  EXPECT_NE(error_of([](ModelConfig& c) { c.kv_heads = 1; }).find("both must be equal"), std::string::npos);
  EXPECT_NE(error_of([](ModelConfig& c) { c.latent->rotary_dim = 5; }).find("even"), std::string::npos);
}

}  // namespace
}  // namespace strata::models
