// [optimizer], from the configuration to the checkpoint.
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

Path last_checkpoint(const TinyRun& tiny, const std::string& name) {
  return tiny.folder(name) / "checkpoints/step-00000006";
}

void train_with_groups(const TinyRun& tiny, const std::string& name, const std::string& groups,
                       const std::vector<std::string>& sets = {}) {
  const auto config = config::parse_run_config(tiny.toml(name) + groups, "RUN.toml", sets);
  EXPECT_EQ(tiny.train_with(RunOptions{.config = config}).end, RunEnd::kFinished);
}

std::string refusal(const TinyRun& tiny, const std::string& groups,
                    const std::vector<std::string>& sets = {}) {
  try {
    tiny.train_with(
        RunOptions{.config = config::parse_run_config(tiny.toml("refused") + groups, "RUN.toml", sets)});
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

// Names and dtypes in optimizer.safetensors.
std::map<std::string, std::string> optimizer_tensors(const Path& checkpoint) {
  std::map<std::string, std::string> tensors;
  for (const auto& row : checkpoint::inspect_checkpoint(checkpoint).tensors) {
    if (row.file == "optimizer.safetensors") tensors[row.name] = row.dtype + row.shape.str();
  }
  return tensors;
}

// A group may name a tensor that is part of a fused parameter: only its rows are affected.
TEST(OptimizerGroups, MayNameRowsOfAFusedParameter) {
  const TinyRun tiny;
  const char* kFrozen = "lr_scale = 0.0\nweight_decay = 0.0\n";
  train_with_groups(tiny, "still", std::string("[[optimizer.group]]\nmatch = \"*\"\n") + kFrozen);
  train_with_groups(tiny, "parts",
                    std::string("[[optimizer.group]]\nmatch = \"*k_proj*\"\n") + kFrozen +
                        "[[optimizer.group]]\nmatch = \"*gate_proj*\"\n" + kFrozen);
  int64_t equal = 0;
  for (const auto& one :
       checkpoint::diff_checkpoints(last_checkpoint(tiny, "still"), last_checkpoint(tiny, "parts"))) {
    if (one.name.find('/') != std::string::npos) continue;  // states
    const bool frozen =
        one.name.find("k_proj") != std::string::npos || one.name.find("gate_proj") != std::string::npos;
    EXPECT_EQ(one.kind == checkpoint::DiffKind::kEqual, frozen) << one.name;
    equal += frozen;
  }
  EXPECT_EQ(equal, 4);
}

// Gradients of the first step are equal, so a group changes exactly its rows.
TEST(OptimizerGroups, ChangeOnlyTheirRows) {
  const TinyRun tiny;
  const std::vector<std::string> once{"training.steps=1", "checkpoint.interval=\"1 steps\"",
                                      "schedule.warmup_steps=0"};
  const auto first = [&](const std::string& name) { return tiny.folder(name) / "checkpoints/step-00000001"; };
  train_with_groups(tiny, "plain", "", once);
  for (const char* change : {"lr_scale = 0.5", "weight_decay = 0.9", "name = \"lion\""}) {
    for (const char* part : {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}) {
      std::filesystem::remove_all(tiny.folder("group"));
      train_with_groups(tiny, "group",
                        fmt::format("[[optimizer.group]]\nmatch = \"*{}*\"\n{}\n", part, change), once);
      for (const auto& one : checkpoint::diff_checkpoints(first("plain"), first("group"))) {
        if (one.name.find('/') != std::string::npos) continue;  // states
        EXPECT_EQ(one.kind != checkpoint::DiffKind::kEqual, one.name.find(part) != std::string::npos)
            << change << " of " << part << ": " << one.name;
      }
    }
  }
}

// The first matching group applies; keys that it lacks have the optimizer's values.
TEST(OptimizerGroups, ChooseAnOptimizerForRows) {
  const TinyRun tiny;
  train_with_groups(tiny, "run",
                    "[[optimizer.group]]\nmatch = \"*q_proj*\"\nname = \"lion\"\n"
                    "[[optimizer.group]]\nmatch = \"*.layers.0.*_proj*\"\nname = \"muon\"\n");
  const auto tensors = optimizer_tensors(last_checkpoint(tiny, "run"));
  const std::string layer = "model.layers.0.self_attn.";
  EXPECT_EQ(tensors.count("momentum/" + layer + "q_proj.weight"), 1u);
  EXPECT_EQ(tensors.count("m/" + layer + "q_proj.weight"), 0u);
  EXPECT_EQ(tensors.count("momentum/" + layer + "k_proj.weight"), 1u);
  EXPECT_EQ(tensors.count("momentum/model.layers.1.self_attn.k_proj.weight"), 0u);
  EXPECT_EQ(tensors.count("v/model.layers.1.self_attn.k_proj.weight"), 1u);
  EXPECT_EQ(tensors.count("v/model.embed_tokens.weight"), 1u);
}

TEST(Optimizers, NameTheirStatesInCheckpoints) {
  const TinyRun tiny;
  const auto tensors_of = [&](const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> sets{"optimizer.name=\"" + name + "\""};
    sets.insert(sets.end(), more.begin(), more.end());
    tiny.train(sets, name);
    return optimizer_tensors(last_checkpoint(tiny, name));
  };
  const std::string k = "model.layers.1.self_attn.k_proj.weight", norm = "model.norm.weight";
  auto tensors = tensors_of("muon");
  EXPECT_EQ(tensors.at("momentum/" + k), "F32[16, 32]");
  EXPECT_EQ(tensors.at("m/" + norm), "F32[32]");
  EXPECT_EQ(tensors.at("v/model.embed_tokens.weight"), "F32[300, 32]");
  tensors = tensors_of("lion");
  EXPECT_EQ(tensors.at("momentum/" + norm), "F32[32]");
  tensors = tensors_of("adafactor");
  EXPECT_EQ(tensors.at("row/" + k), "F32[16]");
  EXPECT_EQ(tensors.at("column/" + k), "F32[32]");
  EXPECT_EQ(tensors.at("variance/" + norm), "F32[32]");
  tensors = tensors_of("adamw8bit");
  EXPECT_EQ(tensors.at("m/model.embed_tokens.weight"), "U8[300, 32]");
  EXPECT_EQ(tensors.at("v_scale/model.embed_tokens.weight"), "F32[38]");
  EXPECT_EQ(tensors.at("m/" + k), "F32[16, 32]") << "too small for 8-bit states";
}

TEST(Optimizers, AreRefusedIfTheyDoNotApply) {
  const TinyRun tiny;
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  std::string message = refusal(tiny, "[[optimizer.group]]\nmatch = \"*qproj*\"\n");
  EXPECT_TRUE(has(message, "optimizer.group.0.match") && has(message, "matches no tensor")) << message;
  message = refusal(tiny, "[[optimizer.group]]\nmatch = \"*embed*\"\nname = \"muon\"\n");
  EXPECT_TRUE(has(message, "optimizer.group.0.name") && has(message, "matrix")) << message;
  for (const char* name : {"muon", "lion", "adafactor", "adamw8bit", "adopt"}) {
    message =
        refusal(tiny, "", {std::string("optimizer.name=\"") + name + "\"", "model.mup_base_hidden_size=16"});
    EXPECT_TRUE(has(message, "optimizer.name") && has(message, name)) << message;
  }
}

// A run cannot resume with states of another optimizer.
TEST(Optimizers, DoNotChangeWithinARun) {
  const TinyRun tiny;
  tiny.train({}, "run", 3);
  try {
    tiny.train_with(RunOptions{.config = tiny.config({"optimizer.name=\"lion\""}), .accept_changes = true});
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.name"), std::string::npos) << error.what();
  }
}

// The count of updates is device state; checkpoints store it in state.json.
TEST(Optimizers, CountUpdatesInTheCheckpoint) {
  const TinyRun tiny;
  tiny.train();
  const auto state = parse_json<nlohmann::json>(bits_of(tiny.folder(), 6).state);
  EXPECT_EQ(state.at("updates").get<int64_t>(), 6);
}

}  // namespace
}  // namespace strata::training
