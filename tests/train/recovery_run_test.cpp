// Runs that go back: their bits do not depend on whether they were killed and resumed, and a replayed step is the
// same.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "fixtures/tiny_run.h"
#include "train/replay.h"

namespace strata::training {
namespace {

// Goes back from step 9 to 5: a weight is NaN after step 6. Replicas would disagree immediately.
const Sets kGoesBack{"training.steps=16",
                     "checkpoint.interval=\"4 steps\"",
                     "checkpoint.keep_last=100",
                     "recovery.snapshot=\"5 steps\"",
                     "recovery.compare_replicas=\"never\"",
                     "debug.inject=[\"nan@step=6,phase=update\"]"};

std::string folder_bits(const Path& run) {
  const FinalBits bits = bits_of(run, 16);
  return bits.model + bits.optimizer;
}

std::vector<std::string> events_of(const Path& run, const std::string& name) {
  std::vector<std::string> found;
  for (const auto& event : metrics_of(run).events) {
    if (event.at("event") != name) continue;
    found.push_back(event.value("rule", "") + " " + event.value("action", "") + " at " +
                    std::to_string(event.at("at_step").get<int64_t>()));
  }
  return found;
}

class RunThatGoesBack : public testing::TestWithParam<int> {
 protected:
  // Ends without a save, as if killed, after this many steps were made in this process; -1: at its end.
  void train(const std::string& name, const Sets& sets, int64_t killed_after = -1) {
    FaultyFileSystem quick;
    RunOptions options{.config = tiny_.config(sets + Sets{"parallel.shard=-1"}, name), .files = &quick};
    int64_t made = 0;
    options.observer.step = [&](const StepRecord&) {
      if (++made == killed_after) throw WorldError("[test] killed");
    };
    options.observer.log = [](LogLevel, std::string_view) {};
    if (killed_after < 0) {
      train_on_threads(options, GetParam(), [] { return false; });
    } else {
      EXPECT_THROW(train_on_threads(options, GetParam(), [] { return false; }), WorldError);
    }
  }
  Path folder(const std::string& name) const { return tiny_.folder(name); }

  TinyRun tiny_;
};

TEST_P(RunThatGoesBack, HasTheSameBitsHoweverOftenItWasKilled) {
  train("whole", kGoesBack);
  const Path whole = folder("whole");
  EXPECT_EQ(events_of(whole, "intervention"),
            (std::vector<std::string>{"nonfinite skip_update at 7", "nonfinite skip_update at 8",
                                      "nonfinite skip_update at 9", "nonfinite rollback_skip at 9"}));
  EXPECT_EQ(events_of(whole, "injected").size(), 1u);
  EXPECT_EQ(metrics_of(whole).steps.size(), 16u);
  EXPECT_TRUE(std::filesystem::exists(whole / "metrics.discarded.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(whole / "checkpoints/step-00000008.discarded"));
  // Killed before the NaN, between it and the rollback, soon after that, and later; twice.
  for (const std::vector<int64_t>& kills : std::vector<std::vector<int64_t>>{{5}, {7}, {10}, {13}, {3, 6}}) {
    std::string name = "killed";
    for (const int64_t kill : kills) name += "-" + std::to_string(kill);
    for (const int64_t kill : kills) train(name, kGoesBack, kill);
    train(name, kGoesBack);
    EXPECT_TRUE(folder_bits(folder(name)) == folder_bits(whole)) << name;
    EXPECT_EQ(events_of(folder(name), "injected").size(), 1u) << name;
    EXPECT_EQ(metrics_of(folder(name)).steps.size(), 16u) << name;
  }
}

TEST_P(RunThatGoesBack, ReplaysEveryStepThatRemains) {
  train("run", kGoesBack + Sets{"log.layers=\"never\""});
  for (const int64_t step : {1, 5, 6, 7, 16}) {
    const Replay replay = replay_on_threads({.run = folder("run"), .step = step}, GetParam());
    EXPECT_TRUE(replay.same) << step;
    EXPECT_FALSE(replay.first_difference || replay.first_nonfinite) << step;
  }
}

// Step 10, which measures the noise scale, is the first one of the process that resumes.
TEST_P(RunThatGoesBack, MeasuresTheSameNoiseAfterAResume) {
  const auto noise_of = [&](const std::string& name) {
    const std::string state = read_file(folder(name) / "checkpoints/step-00000016/state.json");
    return parse_json<nlohmann::json>(state).at("noise");
  };
  for (const char* zero : {"0", "1", "2", "3"}) {
    const Sets sets{std::string("parallel.zero=") + zero, "training.steps=16", "training.micro_batch_size=1",
                    "checkpoint.interval=\"9 steps\"", "training.global_batch_size=8"};
    const std::string whole = std::string("whole-") + zero, killed = std::string("killed-") + zero;
    train(whole, sets);
    train(killed, sets, 9);
    train(killed, sets);
    EXPECT_FALSE(noise_of(whole).empty()) << zero;
    EXPECT_EQ(noise_of(killed), noise_of(whole)) << zero;
    EXPECT_TRUE(folder_bits(folder(killed)) == folder_bits(folder(whole))) << zero;
    if (GetParam() == 1) break;  // nothing to shard
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RunThatGoesBack, testing::Values(1, 2));

// The first NaN of a step is found.
TEST(Replay, FindsTheFirstValueThatIsNotFinite) {
  const TinyRun tiny;
  tiny.train({"debug.inject=[\"nan@step=3,phase=bwd\"]", "recovery.snapshot=\"never\""});
  const Replay replay = replay_on_threads({.run = tiny.folder(), .step = 3}, 1);
  EXPECT_TRUE(replay.same);
  ASSERT_TRUE(replay.first_nonfinite.has_value());
  // Of the second step's two micro-batches, the one in whose backward pass it is.
  int64_t tokens = 0;
  for (const SampleDocument& document : replay.first_nonfinite->documents) {
    EXPECT_EQ(document.name.file, tiny.path("train.bin").string());
    EXPECT_TRUE(document.sample >= 16 && document.sample < 24) << document.sample;
    tokens += document.tokens;
  }
  EXPECT_TRUE(tokens == 4 * 16 || tokens == 8 * 16) << tokens;
  EXPECT_FALSE(replay.first_difference.has_value());
}

TEST(GivingUp, EndsWithTheReasonOnThePage) {
  const TinyRun tiny;
  const Sets sets{"recovery.max_interventions=1", "training.steps=9", "recovery.snapshot=\"2 steps\"",
                  "debug.inject=[\"nan@step=4,phase=bwd\", \"nan@step=6,phase=bwd\"]"};
  EXPECT_THROW(tiny.train(sets), DivergedError);
  EXPECT_NE(read_file(tiny.folder() / "metrics.jsonl").find("\"event\":\"gave_up\""), std::string::npos);
  const std::string page = read_file(tiny.folder() / "index.html");
  EXPECT_NE(page.find("recovery.max_interventions = 1"), std::string::npos);
  EXPECT_NE(page.find("skip_update"), std::string::npos) << "the actions";
}

TEST(GoingBack, TakesACheckpointWithoutSnapshots) {
  const TinyRun tiny;
  const Sets sets{"recovery.in_memory=false", "training.steps=12", "checkpoint.interval=\"3 steps\"",
                  "debug.inject=[\"nan@step=7,phase=update\"]"};
  tiny.train(sets);
  const MetricsLog log = metrics_of(tiny.folder());
  EXPECT_EQ(log.steps.size(), 12u);
  const auto* back = &log.events.front();
  for (const auto& event : log.events)
    if (event.at("event") == "intervention" && event.contains("to_step")) back = &event;
  EXPECT_EQ(back->at("to_step"), 6);
}

}  // namespace
}  // namespace strata::training
