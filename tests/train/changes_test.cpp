// Resuming with changed settings: which may change, and that they change nothing else.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "data/samples/rows.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

nlohmann::json state_of(const Path& run, int64_t step) {
  return parse_json<nlohmann::json>(
      read_file(run / "checkpoints" / fmt::format("step-{:08}", step) / "state.json"));
}

std::vector<nlohmann::json> steps_of(const Path& run) {
  std::vector<nlohmann::json> steps;
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    if (auto json = parse_json<nlohmann::json>(line); !json.contains("event"))
      steps.push_back(std::move(json));
  }
  return steps;
}

TrainResult accept(const TinyRun& tiny, const Sets& sets, int64_t steps = -1) {
  return tiny.train_with({.config = tiny.config(sets), .accept_changes = true}, steps);
}

// Sets the current folder for a scope.
class InFolder {
 public:
  explicit InFolder(const Path& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~InFolder() { std::filesystem::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  Path before_;
};

// Values are compared by meaning: the order in tables and the spelling of numbers and paths do not matter.
TEST(Changes, AnotherSpellingIsNoChange) {
  const TinyRun tiny;
  const auto config = [&](const std::string& overrides, const std::string& lr, const std::string& train) {
    std::string toml = tiny.toml();
    toml.replace(toml.find("lr = 1e-2"), 9, "lr = " + lr);
    toml.replace(toml.find(tiny.path("train.bin").string()), tiny.path("train.bin").string().size(), train);
    return config::parse_run_config(toml + "[model.override]\n" + overrides, "RUN.toml");
  };
  const InFolder here(tiny.path(""));
  const auto first = config("rope_theta = 20000.0\nattention_bias = true\n", "1e-2", "train.bin");
  EXPECT_EQ(tiny.train_with({.config = first}, 2).end, RunEnd::kInterrupted);
  const auto again = config("attention_bias = true\nrope_theta = 20000\n", "0.010",
                            (tiny.folder() / ".." / "train.bin").string());
  EXPECT_EQ(tiny.train_with({.config = first}, 1).step, 3);
  EXPECT_EQ(tiny.train_with({.config = again}).end, RunEnd::kFinished);
  EXPECT_EQ(find_event(metrics_of(tiny.folder()), "changed"), nullptr);
  EXPECT_THROW(
      tiny.train_with({.config = config("attention_bias = true\nrope_theta = 30000\n", "1e-2", "train.bin")}),
      ConfigError);
}

// 6000 tokens are 374 windows of 16.
TEST(Changes, AnotherBatchSizeContinuesAtTheSameSample) {
  const TinyRun tiny;
  tiny.train({}, "run", 2);
  EXPECT_THROW(tiny.train({"training.global_batch_size=4"}), ConfigError);
  accept(tiny, {"training.global_batch_size=4"}, 1);
  // An accepted change needs no further acceptance.
  tiny.train({"training.global_batch_size=4"}, "run", 1);
  accept(tiny, {"training.global_batch_size=16"});
  const auto steps = steps_of(tiny.folder());
  ASSERT_EQ(steps.size(), 6u);
  const std::vector<int64_t> firsts{0, 8, 16, 20, 24, 40}, tokens{128, 256, 320, 384, 640, 896};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(steps[i].at("first_sample"), firsts[i]);
    EXPECT_EQ(steps[i].at("tokens"), tokens[i]);
  }
  EXPECT_EQ(state_of(tiny.folder(), 6).at("next_sample"), 56);
  // The same windows as in a run with smaller steps: weights differ, positions do not.
  EXPECT_EQ(state_of(tiny.folder(), 6).at("sources")[0].at("offset"), 56 * 16);
}

TEST(Changes, AnotherLengthEndsTheCurrentEpoch) {
  const TinyRun tiny;
  tiny.train({"training.steps=40"}, "run", 30);
  accept(tiny, {"training.steps=40", "training.sequence_length=32"});
  const auto state = state_of(tiny.folder(), 40);
  // 374 windows of 16 tokens, 240 of which were used before; the remaining tokens fill 67 rows of 32.
  EXPECT_EQ(state.at("tokens"), 30 * 128 + 10 * 256);
  EXPECT_EQ(state.at("next_sample"), 320);
  EXPECT_EQ(state.at("sources")[0].at("epoch"), 1);
  EXPECT_EQ(state.at("sources")[0].at("offset"), (80 - 67) * 32);
  EXPECT_EQ(state.at("origin").at("sample"), 240);
}

TEST(Changes, TokensCountTrainedTokens) {
  const TinyRun tiny;
  const auto config = [&](const std::string& tokens, const Sets& sets) {
    std::string toml = tiny.toml();
    toml.replace(toml.find("steps = 6"), 9, "tokens = " + tokens);
    return config::parse_run_config(toml, "RUN.toml", sets);
  };
  EXPECT_EQ(tiny.train_with({.config = config("512", {})}).step, 4);
  EXPECT_EQ(tiny.train_with({.config = config("512", {})}).end, RunEnd::kFinished);
  // Twice the tokens with steps twice as large: two more steps.
  const TrainResult more =
      tiny.train_with({.config = config("1024", {"training.global_batch_size=16"}), .accept_changes = true});
  EXPECT_EQ(more.end, RunEnd::kFinished);
  EXPECT_EQ(more.step, 6);
  EXPECT_EQ(steps_of(tiny.folder()).back().at("tokens"), 1024);
}

TEST(Changes, SkipTakesSampleNumbersFromTheMetrics) {
  const TinyRun tiny;
  tiny.train({}, "plain");
  tiny.train({}, "run", 3);
  const auto before = steps_of(tiny.folder("plain"));
  const int64_t bad = before[3].at("first_sample");
  EXPECT_EQ(bad, 24);
  accept(tiny, {fmt::format("data.skip=[[{}, {}]]", bad, bad + 7)});
  const auto steps = steps_of(tiny.folder());
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[3].at("first_sample"), 32);
  EXPECT_EQ(steps[4].at("first_sample"), 40);
  // A range that the run has already passed has no effect.
  const TrainResult more = accept(tiny, {"data.skip=[[0, 15], [24, 31]]", "training.steps=7"});
  EXPECT_EQ(more.step, 7);
  EXPECT_EQ(steps_of(tiny.folder()).back().at("first_sample"), 56);
}

TEST(Changes, EpochsEndTheScheduleToo) {
  const TinyRun tiny;
  // 374 windows in steps of 40; 8 are skipped.
  const Sets sets{"data.epochs=1", "data.skip=[[5, 12]]", "training.steps=1000",
                  "training.global_batch_size=40", "training.micro_batch_size=20"};
  EXPECT_EQ(tiny.train(sets).step, 10);
  const auto steps = steps_of(tiny.folder());
  EXPECT_NEAR(steps.back().at("lr").get<double>(), 1e-2 * 0.1, 1e-9);
  EXPECT_EQ(config::read_stored_config(tiny.folder())->schedule.steps.value, 10);
}

TEST(Changes, PrecisionChangesWithoutItsResidual) {
  const TinyRun tiny;
  tiny.train({}, "run", 2);
  EXPECT_THROW(tiny.train({"precision.compute=bf16"}), ConfigError);
  accept(tiny, {"precision.compute=bf16"}, 2);
  EXPECT_EQ(config::read_stored_config(tiny.folder())->precision.residual, DType::kBF16);
  EXPECT_EQ(accept(tiny, {"precision.compute=fp32"}).end, RunEnd::kFinished);
  EXPECT_EQ(config::read_stored_config(tiny.folder())->precision.residual, DType::kF32);
}

// The value of an "auto" is chosen again if it does not suit an explicit change.
TEST(Changes, AnAutoIsChosenAgain) {
  const TinyRun tiny;
  const Sets sets{"training.micro_batch_size=auto", "memory.recompute=auto"};
  const auto with = [&](std::string more) {
    Sets all = sets;
    all.push_back(std::move(more));
    return all;
  };
  tiny.train(sets, "run", 2);
  EXPECT_EQ(config::read_stored_config(tiny.folder())->training.micro_batch_size.value, 8);
  accept(tiny, with("training.global_batch_size=6"), 1);
  EXPECT_EQ(config::read_stored_config(tiny.folder())->training.micro_batch_size.value, 6);
  tiny.train(with("training.global_batch_size=6"), "run", 1);
  // An event records it like every change.
  bool recorded = false;
  for (const auto& event : metrics_of(tiny.folder()).events)
    recorded = recorded || (event.at("event") == "changed" && event.at("key") == "training.micro_batch_size");
  EXPECT_TRUE(recorded);
}

TEST(Changes, OtherDataAreAcceptedOnce) {
  const TinyRun tiny;
  tiny.train({}, "run", 3);
  put_tokens(tiny.path("train.bin"), tiny_tokens(7000, 8));
  EXPECT_THROW(tiny.train(), ConfigError);
  // Nothing was saved after the acceptance: the plain command resumes nevertheless.
  EXPECT_EQ(accept(tiny, {}, 1).step, 4);
  std::filesystem::remove_all(tiny.folder() / "checkpoints/step-00000004");
  EXPECT_EQ(tiny.train().end, RunEnd::kFinished);
  bool recorded = false;
  for (const auto& event : metrics_of(tiny.folder()).events)
    recorded = recorded || (event.at("event") == "changed" && event.at("key") == "data");
  EXPECT_TRUE(recorded);
}

TEST(Changes, ARefusedStartLeavesTheStoredConfiguration) {
  const TinyRun tiny;
  tiny.train({}, "run", 3);
  const std::string stored = read_file(tiny.folder() / "run.toml");
  EXPECT_THROW(tiny.train({"optimizer.lr=1e-3"}), ConfigError);
  EXPECT_EQ(read_file(tiny.folder() / "run.toml"), stored);
}

// Relative paths are resolved against the folder where the run was started, or where its project is now.
TEST(Changes, ARunResumesFromAnyCurrentFolder) {
  const TinyRun tiny;
  std::string toml = tiny.toml();
  for (const std::string& absolute : {tiny.path("train.bin").string(), tiny.folder().string()}) {
    const std::string name = Path(absolute).filename().string();
    toml.replace(toml.find(absolute), absolute.size(), name);
  }
  {
    const InFolder project(tiny.path(""));
    tiny.train_with({.config = config::parse_run_config(toml, "RUN.toml")}, 2);
  }
  const auto elsewhere = config::read_stored_config(tiny.folder());
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(std::filesystem::weakly_canonical(elsewhere->run.folder),
            std::filesystem::weakly_canonical(tiny.folder()));
  EXPECT_EQ(tiny.train_with({.config = *elsewhere}, 1).step, 3);
  // The whole project moves.
  std::filesystem::create_directory(tiny.path("moved"));
  for (const char* name : {"run", "train.bin", "train.json"})
    std::filesystem::rename(tiny.path(name), tiny.path("moved") / name);
  {
    const InFolder project(tiny.path("moved"));
    EXPECT_EQ(tiny.train_with({.config = config::parse_run_config(toml, "RUN.toml")}, 1).step, 4);
  }
  const auto moved = config::read_stored_config(tiny.path("moved") / "run");
  EXPECT_EQ(tiny.train_with({.config = *moved}).end, RunEnd::kFinished);
}

// Any of the keys that may change, any number of times.
TEST(Changes, AnySubsetAtAnyStep) {
  for (uint64_t trial = 0; trial < 4; ++trial) {
    const TinyRun tiny;
    data::RowDraws draws(trial, 17);
    const auto pick = [&](const Sets& values) {
      return values[static_cast<size_t>(draws.below(std::ssize(values)))];
    };
    std::map<std::string, std::string> now{{"training.global_batch_size", "8"},
                                           {"training.sequence_length", "16"},
                                           {"training.micro_batch_size", "auto"},
                                           {"training.steps", "30"},
                                           {"optimizer.lr", "0.01"},
                                           {"schedule.steps", "30"},
                                           {"data.epochs", "\"repeat\""}};
    std::map<std::string, std::string> last = now;
    int64_t expected_tokens = 0, next_sample = 0;
    size_t seen = 0;
    for (int start = 0; start < 5; ++start) {
      Sets sets;
      for (const auto& [key, value] : now) sets.push_back(key + "=" + value);
      const auto steps_now = start == 4 ? 2 : 1 + draws.below(4);
      accept(tiny, sets, steps_now);
      const auto steps = steps_of(tiny.folder());
      ASSERT_EQ(steps.size(), seen + static_cast<size_t>(steps_now));
      const int64_t batch = std::stoll(now["training.global_batch_size"]);
      for (; seen < steps.size(); ++seen) {
        const auto& step = steps[seen];
        expected_tokens += batch * std::stoll(now["training.sequence_length"]);
        EXPECT_EQ(step.at("tokens"), expected_tokens);
        EXPECT_EQ(step.at("first_sample"), next_sample);
        next_sample += batch;
        const double s = static_cast<double>(seen) + 1, lr = std::stod(now["optimizer.lr"]);
        const double at = (s - 2) / (std::stod(now["schedule.steps"]) - 2);
        const double curve = s <= 2 ? s / 2 : 0.1 + 0.9 * 0.5 * (1 + std::cos(M_PI * at));
        EXPECT_NEAR(step.at("lr").get<double>(), lr * curve, 1e-9) << "step " << s;
      }
      // Every change is an event.
      const auto events = metrics_of(tiny.folder()).events;
      for (const auto& [key, value] : now) {
        const auto was = last.find(key);
        if (start == 0 || (was != last.end() && was->second == value)) continue;
        const bool recorded = std::any_of(events.begin(), events.end(), [&, name = key](const auto& event) {
          return event.at("event") == "changed" && event.at("key") == name;
        });
        // A newly given key may have its default value.
        EXPECT_TRUE(recorded || was == last.end()) << key << " = " << value;
      }
      last = now;
      if (draws.with_chance(0.5)) now["training.global_batch_size"] = pick({"1", "2", "6", "16"});
      if (draws.with_chance(0.5)) now["training.sequence_length"] = pick({"8", "24", "16", "48"});
      if (draws.with_chance(0.3)) now["optimizer.lr"] = pick({"0.02", "0.001"});
      if (draws.with_chance(0.3)) now["schedule.steps"] = pick({"40", "25"});
      if (draws.with_chance(0.3)) now["data.shuffle"] = pick({"true", "false"});
      if (draws.with_chance(0.3)) now["data.pack"] = pick({"\"stream\"", "\"best_fit\"", "\"documents\""});
      if (draws.with_chance(0.3)) now["training.clip_grad_norm"] = pick({"0.5", "0.0"});
      if (draws.with_chance(0.3)) now["precision.compute"] = pick({"\"bf16\"", "\"fp32\""});
      if (draws.with_chance(0.3)) now["checkpoint.keep_last"] = pick({"2", "5"});
      if (draws.with_chance(0.3)) now["memory.recompute"] = pick({"\"full\"", "\"none\""});
    }
    // Starting again with the same configuration needs no acceptance.
    const auto stored = config::read_stored_config(tiny.folder());
    ASSERT_TRUE(stored);
    EXPECT_NO_THROW(tiny.train_with({.config = *stored}, 1));
  }
}

// Runs whose weights or moments have fewer bits continue with the same bits.
TEST(Changes, LowPrecisionResumesWithTheSameBits) {
  for (const Sets& sets :
       {Sets{"precision.weights=\"bf16\""},
        Sets{"precision.weights=\"bf16\"", "precision.rounding=\"kahan\"", "optimizer.state_dtype=\"bf16\""},
        Sets{"precision.weights=\"bf16\"", "optimizer.state_dtype=\"fp8\""}}) {
    const TinyRun tiny;
    tiny.train(sets, "whole");
    tiny.train(sets, "parts", 3);
    tiny.train(sets, "parts", 1);
    tiny.train(sets, "parts");
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string path = std::string("checkpoints/step-00000006/") + file;
      EXPECT_EQ(read_file(tiny.folder("parts") / path), read_file(tiny.folder("whole") / path)) << path;
    }
  }
}

// Weights, their rounding and the moments' type change on request only, and are converted.
TEST(Changes, OtherPrecisionOfWeightsIsAccepted) {
  const TinyRun tiny;
  tiny.train({}, "run", 2);
  EXPECT_THROW(tiny.train({"precision.weights=\"bf16\""}), ConfigError);
  accept(tiny, {"precision.weights=\"bf16\""}, 1);
  EXPECT_THROW(tiny.train({"precision.weights=\"bf16\"", "precision.rounding=\"kahan\""}), ConfigError);
  accept(tiny, {"precision.weights=\"bf16\"", "precision.rounding=\"kahan\""}, 1);
  accept(tiny,
         {"precision.weights=\"bf16\"", "precision.rounding=\"nearest\"", "optimizer.state_dtype=\"bf16\""},
         1);
  const TrainResult end = accept(tiny, {});
  EXPECT_EQ(end.end, RunEnd::kFinished);
  EXPECT_EQ(end.step, 6);
  const auto steps = steps_of(tiny.folder());
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_LT(steps.back().at("loss").get<double>(), steps.front().at("loss").get<double>());
  // Codes of fp8 are not made of other moments.
  try {
    accept(tiny, {"optimizer.state_dtype=\"fp8\"", "training.steps=8"});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.state_dtype"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::training
