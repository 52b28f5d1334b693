// Runs whose ranks are killed and that continue from copies of their state in memory. Ranks are threads here; a
// WorldError between two steps, or _exit, stands for the kill.
#include "train/copies.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"
#include "fixtures/child_process.h"
#include "fixtures/environment.h"
#include "fixtures/tiny_run.h"
#include "train/launched.h"
#include "train/memory_folder.h"

namespace strata::training {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 14;
const Sets kCopies{"training.steps=14", "checkpoint.interval=\"8 steps\"", "recovery.copies=\"3 steps\""};

class RunWithCopies : public testing::TestWithParam<int> {
 protected:
  ~RunWithCopies() override {
    for (const std::string& name : names_) remove_memory_folder(tiny_.folder(name));
  }

  // Ends like a killed run after this many steps of this call; -1: at its end. Returns the lines of its log.
  std::string train(const std::string& name, const Sets& sets, int64_t killed_after = -1, FaultPlan plan = {},
                    int ranks = GetParam()) {
    names_.insert(name);
    FaultyFileSystem files(plan);
    RunOptions options{.config = tiny_.config(sets, name), .files = &files};
    int64_t made = 0;
    options.observer.step = [&](const StepRecord&) {
      if (++made == killed_after) throw WorldError("[test] killed");
    };
    std::string log;
    options.observer.log = [&](LogLevel, std::string_view line) { log += std::string(line) + "\n"; };
    const auto run = [&] { train_on_threads(options, ranks, [] { return false; }); };
    if (killed_after < 0) {
      run();
    } else {
      EXPECT_THROW(run(), WorldError);
    }
    calls_ = files.calls();
    return log;
  }
  void expect_as_whole(const std::string& name, const std::string& what, int64_t steps = kSteps) const {
    expect_same_bits(bits_of(tiny_.folder(name), steps), bits_of(tiny_.folder("whole"), steps), what);
    EXPECT_EQ(metrics_of(tiny_.folder(name)).steps, metrics_of(tiny_.folder("whole")).steps) << what;
    EXPECT_FALSE(fs::exists(memory_folder(tiny_.folder(name)))) << what;
  }
  // "start", "disk 8", "copies 9": how the newest start of a run began.
  std::string began(const std::string& name) const {
    std::string text;
    for (const auto& event : metrics_of(tiny_.folder(name)).events) {
      if (event.at("event") == "start") text = "start";
      if (event.at("event") == "resume")
        text = event.at("from").get<std::string>() + " " + std::to_string(event.at("at_step").get<int64_t>());
    }
    return text;
  }
  std::vector<nlohmann::json> corruption_in(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const auto& event : metrics_of(tiny_.folder(name)).events)
      if (event.at("event") == "corruption") found.push_back(event);
    return found;
  }
  Path memory(const std::string& name) const { return memory_folder(tiny_.folder(name)); }
  std::vector<int64_t> copied(const std::string& name, int64_t rank = 0) const {
    return CopySlots(posix_file_system(), memory(name), rank).steps();
  }
  void fresh(const std::string& name) {
    fs::remove_all(tiny_.folder(name));
    remove_memory_folder(tiny_.folder(name));
  }

  TinyRun tiny_;
  std::set<std::string> names_;
  int64_t calls_ = 0;
};

INSTANTIATE_TEST_SUITE_P(OnRanks, RunWithCopies, testing::Values(1, 2));

TEST_P(RunWithCopies, ContinuesFromTheNewestStepWithTheSameBits) {
  train("whole", kCopies);
  EXPECT_FALSE(fs::exists(memory("whole")));
  for (int64_t killed = 1; killed < kSteps; ++killed) {
    const std::string what = "killed in step " + std::to_string(killed);
    fresh("run");
    train("run", kCopies, killed);
    const int64_t copy = (killed - 1) / 3 * 3, saved = killed > 8 ? 8 : 0;
    for (int64_t rank = 0; rank < GetParam(); ++rank) {
      if (copy > 0) {
        EXPECT_EQ(copied("run", rank).front(), copy) << what;
      }
    }
    EXPECT_EQ(newest_copied_step(memory("run")).value_or(0), copy);
    train("run", kCopies);
    EXPECT_EQ(began("run"), copy == 0       ? "start"
                            : copy >= saved ? "copies " + std::to_string(copy)
                                            : "disk 8")
        << what;
    expect_as_whole("run", what);
  }
}

TEST_P(RunWithCopies, MayBeKilledAgainAndAgain) {
  train("whole", kCopies);
  for (int kills = 0; kills < 4; ++kills) train("run", kCopies, 4);
  EXPECT_EQ(began("run"), "copies 9");
  train("run", kCopies);
  expect_as_whole("run", "killed four times");
}

// Undone steps are not in a copy either.
TEST_P(RunWithCopies, GoesBackAsIfItHadNotBeenKilled) {
  const Sets sets{"training.steps=16",
                  "checkpoint.interval=\"4 steps\"",
                  "checkpoint.keep_last=100",
                  "recovery.snapshot=\"5 steps\"",
                  "recovery.compare_replicas=\"never\"",
                  "recovery.copies=\"2 steps\"",
                  "debug.inject=[\"nan@step=6,phase=update\"]"};
  train("whole", sets);
  ASSERT_NE(find_event(metrics_of(tiny_.folder("whole")), "intervention"), nullptr);
  for (int64_t killed = 3; killed < 20; killed += 2) {
    fresh("run");
    train("run", sets, killed);
    train("run", sets);
    expect_as_whole("run", "killed after " + std::to_string(killed) + " steps", 16);
  }
}

// The checkpoint of the same step has no tensors any more.
TEST_P(RunWithCopies, ReadsNoTensorOfACheckpoint) {
  train("whole", kCopies);
  const Sets sets = kCopies + Sets{"recovery.copies=\"4 steps\""};
  train("run", sets, 10);
  ASSERT_EQ(copied("run").front(), 8);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    ASSERT_TRUE(fs::remove(tiny_.folder("run") / "checkpoints/step-00000008" / file));
  train("run", sets);
  EXPECT_EQ(began("run"), "copies 8");
  expect_as_whole("run", "without tensors");
}

class OneRankWithCopies : public RunWithCopies {};
INSTANTIATE_TEST_SUITE_P(OnRanks, OneRankWithCopies, testing::Values(1));

void flip_bit(const Path& path, uint64_t draw) {
  std::string bytes = read_file(path);
  char& byte = bytes[draw / 8 % bytes.size()];
  byte = static_cast<char>(byte ^ (1 << draw % 8));
  put_file(path, bytes);
}

TEST_P(OneRankWithCopies, DamageIsFoundAndTheOlderCopyServes) {
  train("whole", kCopies);
  for (uint64_t draw = 0; draw < 8; ++draw) {
    fresh("run");
    train("run", kCopies, 8);
    ASSERT_EQ(copied("run"), (std::vector<int64_t>{6, 3}));
    const FoundCopy newest = CopySlots(posix_file_system(), memory("run"), 0).find(6);
    const uint64_t place = philox({3, 5}, draw)[0];
    flip_bit(draw % 2 == 0 ? newest.data : newest.manifest, place);
    const std::string log = train("run", kCopies);
    EXPECT_EQ(began("run"), "copies 3") << log;
    const auto events = corruption_in("run");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].at("where"), "copy");
    EXPECT_EQ(events[0].at("rank"), 0);
    EXPECT_EQ(events[0].at("found_by"), "digest");
    EXPECT_EQ(events[0].at("tensor") == "manifest", draw % 2 == 1);
    EXPECT_NE(log.find("the copy of rank 0"), std::string::npos) << log;
    expect_as_whole("run", "a flipped bit");
  }
}

TEST_P(RunWithCopies, OneDamagedRankTakesAllToTheOlderCopyOrTheDisk) {
  train("whole", kCopies);
  const int64_t last = GetParam() - 1;
  train("run", kCopies, 13);
  ASSERT_EQ(copied("run", last), (std::vector<int64_t>{12, 9}));
  flip_bit(CopySlots(posix_file_system(), memory("run"), last).find(12).data, 77);
  train("run", kCopies, 2);
  EXPECT_EQ(began("run"), "copies 9");
  EXPECT_EQ(copied("run", 0), (std::vector<int64_t>{9}));
  flip_bit(CopySlots(posix_file_system(), memory("run"), 0).find(9).data, 78);
  train("run", kCopies);
  EXPECT_EQ(began("run"), "disk 8");
  EXPECT_EQ(corruption_in("run").size(), 2u);
  expect_as_whole("run", "two damaged copies");
}

TEST_P(OneRankWithCopies, OthersAreReportedOnceAndIgnored) {
  train("whole", kCopies);
  const std::function<void(CopyManifest&)> changes[] = {
      [](CopyManifest& one) { one.origin.run = "another"; },
      [](CopyManifest& one) { one.origin.program = "strata 0.0.0"; },
      [](CopyManifest& one) { one.origin.layout = "another"; },
      [](CopyManifest& one) { one.origin.ranks = 3; }};
  const char* words[] = {"they belong to another run", "strata 0.0.0 made them", "of another layout",
                         "they are of 3 ranks"};
  for (size_t i = 0; i < std::size(changes); ++i) {
    fresh("run");
    train("run", kCopies, 12);
    for (const FoundCopy& copy : list_copies(memory("run"))) {
      CopyManifest other = *copy.content;
      changes[i](other);
      put_file(copy.manifest, to_json(other));
    }
    const std::string log = train("run", kCopies);
    EXPECT_EQ(began("run"), "disk 8");
    const size_t at = log.find(words[i]);
    ASSERT_NE(at, std::string::npos) << log;
    EXPECT_EQ(log.find(words[i], at + 1), std::string::npos) << log;
    EXPECT_TRUE(corruption_in("run").empty());
    expect_as_whole("run", words[i]);
  }
}

TEST_P(OneRankWithCopies, ANewRunInTheSameFolderDoesNotTakeThem) {
  train("run", kCopies, 12);
  fs::remove_all(tiny_.folder("run"));
  const std::string log = train("run", kCopies, 2);
  EXPECT_NE(log.find("they belong to another run"), std::string::npos) << log;
  EXPECT_EQ(began("run"), "start");
  EXPECT_EQ(copied("run"), std::vector<int64_t>{});
}

TEST_P(OneRankWithCopies, OtherRanksOrSettingsDoNotTakeThem) {
  train("run", kCopies, 7);
  const std::string log = train("run", kCopies + Sets{"parallel.shard=-1"}, 1, {}, 2);
  EXPECT_EQ(began("run"), "start") << log;
  fresh("run");
  // Before the first checkpoint any setting may change; the run then starts again.
  train("run", kCopies, 7);
  train("run", kCopies + Sets{"optimizer.lr=2e-3"}, 1);
  EXPECT_EQ(began("run"), "start");
  EXPECT_FALSE(has_copies(memory("run")));
}

TEST_P(RunWithCopies, AStartThatUsesNoneRemovesThem) {
  train("whole", kCopies);
  train("run", kCopies, 12);
  train("run", kCopies + Sets{"recovery.copies=\"never\""}, 2);
  EXPECT_EQ(began("run"), "disk 8");
  EXPECT_FALSE(fs::exists(memory("run")));
  train("run", kCopies);
  expect_as_whole("run", "with copies again");
}

// "auto" makes copies under strata launch only, but a start without it uses existing ones and removes them at the end.
TEST_P(RunWithCopies, AutoFollowsTheLauncher) {
  const Sets sets{"training.steps=14", "checkpoint.interval=\"8 steps\""};
  train("whole", sets);
  EXPECT_FALSE(fs::exists(tiny_.folder("whole") / "copies.json"));
  {
    const fixtures::Environment launched(kLaunchAttempt, "1");
    train("run", sets, 7);
  }
  const auto copies = copied("run");
  ASSERT_FALSE(copies.empty());
  train("run", sets, 2);
  EXPECT_EQ(began("run"), "copies " + std::to_string(copies.front()));
  EXPECT_EQ(copied("run"), copies);
  train("run", sets);
  expect_as_whole("run", "auto");
}

TEST_P(OneRankWithCopies, TooLittleSpaceIsReportedAtTheStart) {
  const FaultPlan full{.free_bytes = 100000};
  try {
    train("run", kCopies, -1, full);
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("[recovery.copies] the copies take 603 kB in /dev/shm"), std::string::npos) << what;
    EXPECT_NE(what.find("only 100 kB are free"), std::string::npos) << what;
  }
  EXPECT_FALSE(fs::exists(memory("run")));
  // "auto" then makes none.
  const fixtures::Environment launched(kLaunchAttempt, "1");
  const std::string log = train("run", {"memory.budget=1000000"});
  EXPECT_NE(log.find("[recovery.copies] the copies of a rank take 603 kB: more than memory.budget leaves"),
            std::string::npos)
      << log;
  EXPECT_FALSE(fs::exists(memory("run")));
}

// Each call that writes kills the process, or fails once: the same command ends with the same bits.
TEST_P(OneRankWithCopies, DeathOrAnErrorAtAnyCallChangesNoBit) {
  const Sets sets{"training.steps=5", "checkpoint.interval=\"never\"", "recovery.copies=\"1 steps\"",
                  "model.num_hidden_layers=1"};
  train("whole", sets);
  const int64_t calls = calls_;
  ASSERT_GT(calls, 60);
  for (int64_t at = 2; at <= calls; at += 5) {
    fresh("run");
    const FaultPlan kill{.kind = at % 2 == 0 ? FaultKind::kKillBefore : FaultKind::kKillAfter, .at = at};
    EXPECT_NE(exit_code_of_child([&] { train("run", sets, -1, kill); }), 1) << at;
    train("run", sets);
    expect_as_whole("run", "killed at call " + std::to_string(at), 5);
  }
  for (int64_t at = 4; at <= calls; at += 9) {
    fresh("run");
    try {
      train("run", sets, -1, {.kind = FaultKind::kError, .at = at});
    } catch (const WorldError&) {  // of another file
      train("run", sets);
    }
    expect_as_whole("run", "an error at call " + std::to_string(at), 5);
  }
}

TEST_P(OneRankWithCopies, InjectedDamageIsFound) {
  const Sets sets = kCopies + Sets{"debug.inject=[\"flip@step=5,where=copy\"]"};
  train("whole", kCopies);
  train("run", sets, 8);
  ASSERT_NE(find_event(metrics_of(tiny_.folder("run")), "injected"), nullptr);
  train("run", sets);
  EXPECT_EQ(began("run"), "copies 3");
  EXPECT_EQ(corruption_in("run").size(), 1u);
  expect_as_whole("run", "an injected flip");
}

}  // namespace
}  // namespace strata::training
