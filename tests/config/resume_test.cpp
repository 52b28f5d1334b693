#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "config/keys.h"

namespace strata::training {
namespace {

const std::string kMinimal = "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"a.txt\"]\n";

config::RunConfig with(std::vector<std::string> sets) {
  return config::parse_run_config(kMinimal, "run.toml", sets);
}

struct Case {
  std::string set;
  config::ResumeClass expected;
};

// One key of every table, with its class in the interface's "Resume".
TEST(ResumeTest, ClassesOfTheTables) {
  const std::vector<Case> cases = {{"log.interval_steps=1", config::ResumeClass::kFree},
                                   {"eval.interval=never", config::ResumeClass::kFree},
                                   {"checkpoint.keep_last=9", config::ResumeClass::kFree},
                                   {"parallel.tensor=2", config::ResumeClass::kFree},
                                   {"memory.recompute=full", config::ResumeClass::kFree},
                                   {"device.threads=3", config::ResumeClass::kFree},
                                   {"profile.steps=[4]", config::ResumeClass::kFree},
                                   {"debug.reference_kernels=true", config::ResumeClass::kFree},
                                   {"run.folder=elsewhere", config::ResumeClass::kFree},
                                   {"run.seed=5", config::ResumeClass::kRefused},
                                   {"model.mtp_loss_weight=0.1", config::ResumeClass::kAccept},
                                   {"optimizer.lr=0.5", config::ResumeClass::kAccept},
                                   {"schedule.name=wsd", config::ResumeClass::kAccept},
                                   {"data.shuffle=false", config::ResumeClass::kAccept},
                                   {"data.fim_rate=0.5", config::ResumeClass::kAccept},
                                   {"data.fim_spm_rate=0.1", config::ResumeClass::kAccept},
                                   {"data.mask_rate=0.3", config::ResumeClass::kAccept},
                                   {"data.objective=masked", config::ResumeClass::kRefused},
                                   {"data.temperature=2.0", config::ResumeClass::kAccept},
                                   {"training.steps=2000", config::ResumeClass::kAccept},
                                   {"precision.compute=fp32", config::ResumeClass::kAccept},
                                   {"model.preset=other", config::ResumeClass::kRefused},
                                   {"tokenizer.add_bos=true", config::ResumeClass::kRefused},
                                   {"model.override.vocab_size=5", config::ResumeClass::kRefused},
                                   {"tokenizer.train.vocab_size=300", config::ResumeClass::kRefused}};
  const config::RunConfig stored = with({});
  for (const Case& item : cases) {
    const auto changes = config::compare_for_resume(stored, with({item.set}));
    ASSERT_GE(changes.size(), 1u) << item.set;
    for (const config::Change& change : changes)
      EXPECT_EQ(change.resume, item.expected) << item.set << " " << change.key;
  }
}

TEST(ResumeTest, AutoKeepsTheRunsValue) {
  config::RunConfig stored = with({"device.threads=4", "training.micro_batch_size=8", "schedule.steps=1000",
                                   "precision.compute=bf16", "checkpoint.interval=50", "memory.budget=4GB"});
  stored.tokenizer.path = "runs/run/tokenizer.json";
  EXPECT_TRUE(config::compare_for_resume(stored, with({})).empty());
  // Extending a run does not change its learning-rate schedule.
  const config::RunConfig extended = config::keep_resolved(with({"training.steps=3000"}), stored);
  EXPECT_EQ(config::schedule_of(extended).steps, 1000);
  EXPECT_EQ(config::total_steps(extended), 3000);
}

TEST(ResumeTest, RejectsChangesOrNeedsAcceptance) {
  const auto changes =
      config::compare_for_resume(with({}), with({"optimizer.lr=0.5", "log.interval_steps=2"}));
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].before, "0.001");
  EXPECT_EQ(changes[0].after, "0.5");
  EXPECT_NO_THROW(config::require_resumable(changes, true));
  try {
    config::require_resumable(changes, false);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.lr: 0.001 → 0.5: needs --accept-changes"),
              std::string::npos)
        << error.what();
    EXPECT_EQ(std::string(error.what()).find("log."), std::string::npos);
  }
  EXPECT_THROW(config::require_resumable(config::compare_for_resume(with({}), with({"run.seed=5"})), true),
               ConfigError);
}

// Runs of earlier versions stored a name for groups that have none.
TEST(ResumeTest, AGroupsNameIsTheOptimizersUnlessGiven) {
  const auto group = [](const char* name) {
    return with({std::string("optimizer.group=[{match=\"*embed*\"") + name + "}]"});
  };
  EXPECT_TRUE(config::compare_for_resume(group(", name=\"adamw\""), group("")).empty());
  EXPECT_TRUE(config::compare_for_resume(group(""), group(", name=\"adamw\"")).empty());
  EXPECT_EQ(config::compare_for_resume(group(""), group(", name=\"lion\"")).size(), 3u)
      << "the name and Lion's keys";
}

TEST(ResumeTest, ResolvedTomlRoundTrips) {
  const std::vector<std::string> sets = {
      "optimizer.group=[{match=\"*embed*\", lr_scale=0.5}, {match=\"*norm*\", weight_decay=0.0}]",
      "eval.set=[{name=\"far\", path=[\"x\", \"y\"], max_tokens=\"1M\"}]",
      "tokenizer.train={vocab_size=400}",
      "data.skip=[[1,5], 9]",
      "model.override={rope_scaling={type=\"linear\", factor=2.0}, note=\"a \\\"b\\\"\\n\"}",
      "optimizer.eps=1e-12",
      "optimizer.name=\"muon\"",
      "optimizer.muon.momentum=0.9",
      "training.tokens=3M",
      "checkpoint.keep_every=500"};
  const config::RunConfig config = with(sets);
  ASSERT_TRUE(config::validate(config).empty()) << config::validate(config)[0].to_string();
  const std::string text = config::resolved_toml(config, "2 cores");
  const config::RunConfig again = config::parse_run_config(text, "run.toml");
  EXPECT_TRUE(config::validate(again).empty()) << config::validate(again)[0].to_string() << text;
  EXPECT_TRUE(config::compare_for_resume(config, again).empty()) << text;
  EXPECT_NE(text.find("# Machine: 2 cores"), std::string::npos);
  EXPECT_EQ(config::resolved_toml(again, "2 cores"), text);
}

TEST(ResumeTest, CommentedTomlHasTheSameMeaning) {
  const config::RunConfig config = with({"training.steps=77"});
  const std::string text = config::commented_toml(config, "A run.");
  const config::RunConfig again = config::parse_run_config(text, "run.toml");
  EXPECT_TRUE(config::validate(again).empty()) << text;
  EXPECT_TRUE(config::compare(config, again).empty()) << text;
  EXPECT_EQ(again.origins.size(), config.origins.size());
  EXPECT_NE(text.find("[parallel]"), std::string::npos);
  EXPECT_EQ(text.find("histograms"), std::string::npos) << "of a later version";
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    EXPECT_LE(end - at, 120u) << text.substr(at, end - at);
  }
}

// Every key can be read if its comment is uncommented.
TEST(ResumeTest, EveryKeyHasAHelpAndAReadableDefault) {
  for (const config::TableSpec& table : config::run_tables()) {
    EXPECT_FALSE(table.help.empty()) << table.name;
    for (const config::KeySpec& spec : table.keys) {
      EXPECT_TRUE(spec.help.ends_with(".") || spec.help.ends_with("]")) << table.name << "." << spec.name;
      config::RunConfig config;
      void* object = table.at(config, 0);
      const auto value = spec.write(object);
      EXPECT_TRUE(!value || spec.read(object, *value)) << spec.name;
    }
  }
}

TEST(SchemaTest, NamesEveryKeyWithDefaultAndHelp) {
  const auto schema = parse_json<nlohmann::json>(config::config_schema());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  for (const config::TableSpec& table : config::run_tables()) {
    const nlohmann::json* at = &schema;
    std::string name = table.name;
    for (size_t dot = 0; !name.empty(); name = dot == std::string::npos ? "" : name.substr(dot + 1)) {
      dot = name.find('.');
      at = &at->at("properties").at(name.substr(0, dot));
    }
    if (table.list) at = &at->at("items");
    EXPECT_EQ(at->at("additionalProperties"), false) << table.name;
    for (const config::KeySpec& spec : table.keys) {
      const auto& key = at->at("properties").at(spec.name);
      EXPECT_TRUE(key.contains("type") || key.contains("enum") || key.contains("anyOf")) << spec.name;
      EXPECT_TRUE(key.contains("description"));
    }
  }
  EXPECT_EQ(schema["properties"]["training"]["properties"]["sequence_length"]["default"], 512);
  EXPECT_EQ(schema["properties"]["training"]["properties"]["sequence_length"]["minimum"], 1);
}

}  // namespace
}  // namespace strata::training
