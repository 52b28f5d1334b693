// The resume contract of interface.md: changes that are free, need --accept-changes, or are refused.
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/parallel.h"
#include "base/pin.h"
#include "checkpoint/checkpoint.h"
#include "fixtures/environment.h"
#include "fixtures/tiny_run.h"
#include "hardware/device_spec.h"
#include "kernels/cpu/measure.h"

namespace strata::training {
namespace {

// The message of a refused run; any error but a ConfigError fails the test.
std::string refusal(const TinyRun& tiny, const RunOptions& options) {
  try {
    tiny.train_with(options);
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "not refused";
  return "";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Contract, FreeChangesAreAcceptedAndRecorded) {
  const TinyRun tiny;
  tiny.train({}, "whole");
  tiny.train({}, "run", 3);
  const auto before = bits_of(tiny.folder(), 3);
  tiny.train({"checkpoint.keep_last=2", "eval.sample_tokens=3", "log.interval_steps=1",
              "memory.recompute=\"full\"", "device.pin=false", "profile.steps=[5]"});
  expect_same_bits(bits_of(tiny.folder("whole"), 6), bits_of(tiny.folder(), 6));
  const MetricsLog log = metrics_of(tiny.folder());
  std::map<std::string, std::string> changed;
  for (const auto& event : log.events) {
    if (event["event"] == "changed")
      changed[event["key"]] = event["before"].get<std::string>() + " to " + event["after"].get<std::string>();
  }
  EXPECT_EQ(changed.at("checkpoint.keep_last"), "3 to 2");
  EXPECT_EQ(changed.at("device.pin"), "true to false");
  EXPECT_EQ(changed.size(), 6u);
  EXPECT_TRUE(std::filesystem::exists(tiny.folder() / "traces/step-00000005.json"));
}

TEST(Contract, ChangesToTrainingNeedConsent) {
  const TinyRun tiny;
  tiny.train({}, "run", 2);
  const auto good = bits_of(tiny.folder(), 2);
  const std::string stored = read_file(tiny.folder() / "run.toml");
  for (const char* set : {"optimizer.lr=0.5", "schedule.name=\"linear\"", "data.shuffle=false",
                          "training.global_batch_size=4", "precision.compute=\"bf16\""}) {
    const std::string message = refusal(tiny, {.config = tiny.config({set})});
    const std::string key = std::string(set).substr(0, std::string(set).find('='));
    EXPECT_TRUE(contains(message, key) && contains(message, "--accept-changes")) << message;
  }
  EXPECT_EQ(read_file(tiny.folder() / "run.toml"), stored);
  expect_same_bits(bits_of(tiny.folder(), 2), good);
  RunOptions accepted{.config = tiny.config({"optimizer.lr=0.5", "data.shuffle=false"}),
                      .accept_changes = true};
  EXPECT_EQ(tiny.train_with(accepted).end, RunEnd::kFinished);
  const MetricsLog log = metrics_of(tiny.folder());
  EXPECT_EQ(log.steps.size(), 6u);
  EXPECT_NE(find_event(log, "changed"), nullptr);
  // Accepted changes become part of the run.
  EXPECT_TRUE(contains(read_file(tiny.folder() / "run.toml"), "lr = 0.5"));
  EXPECT_EQ(tiny.train({"optimizer.lr=0.5", "data.shuffle=false"}).step, 6);
}

TEST(Contract, ModelTokenizerAndSeedAreRefused) {
  const TinyRun tiny;
  tiny.train({}, "run", 2);
  for (const char* set : {"model.hidden_size=64", "model.num_hidden_layers=1", "run.seed=9"}) {
    const std::string message = refusal(tiny, {.config = tiny.config({set}), .accept_changes = true});
    EXPECT_TRUE(contains(message, "cannot change")) << message;
  }
}

// Before its first checkpoint, a run may change entirely.
TEST(Contract, AnythingMayChangeBeforeTheFirstCheckpoint) {
  const TinyRun tiny;
  tiny.train({}, "run", 1);
  std::filesystem::remove_all(tiny.folder() / "checkpoints");
  EXPECT_EQ(tiny.train({"run.seed=9", "model.num_hidden_layers=1"}).end, RunEnd::kFinished);
  tiny.train({"run.seed=9", "model.num_hidden_layers=1"}, "fresh");
  expect_same_bits(bits_of(tiny.folder(), 6), bits_of(tiny.folder("fresh"), 6));
  EXPECT_EQ(metrics_of(tiny.folder()).steps, metrics_of(tiny.folder("fresh")).steps);
}

TEST(Contract, NeverRefusesAFolderWithARun) {
  const TinyRun tiny;
  EXPECT_EQ(tiny.train_with(RunOptions{.config = tiny.config(), .resume = "never"}).end, RunEnd::kFinished);
  const std::string message = refusal(tiny, {.config = tiny.config(), .resume = "never"});
  EXPECT_TRUE(contains(message, "holds a run") && contains(message, "run.folder")) << message;
}

TEST(Contract, AFinishedRunIsLeftUnchanged) {
  const TinyRun tiny;
  tiny.train();
  const std::string metrics = read_file(tiny.folder() / "metrics.jsonl");
  const TrainResult again = tiny.train();
  EXPECT_EQ(again.end, RunEnd::kFinished);
  EXPECT_EQ(again.step, 6);
  EXPECT_EQ(read_file(tiny.folder() / "metrics.jsonl"), metrics);
}

// Cached peak rates of this machine, one slower than any step and one faster.
TEST(Contract, MfuIgnoresAPeakBelowTheRateOfAStep) {
  const TinyRun tiny;
  const fixtures::Environment cache("XDG_CACHE_HOME", tiny.folder("cache"));
  for (const auto& [peak, name] : {std::pair{1.0, "slow"}, std::pair{1e18, "fast"}}) {
    hardware::DeviceSpec device = cpu::describe_device(1);
    device.gemm_flops[hardware::Precision::kFp32] = peak;
    ASSERT_TRUE(hardware::save_cached_device(posix_file_system(), device));
    tiny.train({"precision.compute=\"fp32\""}, name);
    EXPECT_EQ(contains(read_file(tiny.folder(name) / "metrics.jsonl"), "\"mfu_measured\""), peak > 1) << name;
  }
}

// A run killed after its last save still gets its final model and events.
TEST(Contract, AFinishedRunIsCompleted) {
  const TinyRun tiny;
  tiny.train();
  const std::string model = read_file(tiny.folder() / "final/model.safetensors");
  std::filesystem::remove_all(tiny.folder() / "final");
  std::string metrics = read_file(tiny.folder() / "metrics.jsonl");
  metrics.resize(metrics.rfind("{\"event\":\"finish\""));
  put_file(tiny.folder() / "metrics.jsonl", metrics);
  tiny.train();
  EXPECT_EQ(read_file(tiny.folder() / "final/model.safetensors"), model);
  EXPECT_NE(find_event(metrics_of(tiny.folder()), "finish"), nullptr);
}

// device.pin, observed inside a run. If another run on this machine has pinned its threads, this one does not
// pin its own.
TEST(Contract, ThreadsArePinnedOnRequest) {
  const int threads = available_processors();
  if (!pinning_helps(threads, threads, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))))
    GTEST_SKIP() << "not on this machine";
  const TinyRun tiny;
  FaultyFileSystem quick;
  for (const bool pin : {true, false}) {
    bool bound = false, others = false;
    RunOptions options{.config = tiny.config({"device.threads=" + std::to_string(threads),
                                              std::string("device.pin=") + (pin ? "true" : "false")},
                                             pin ? "pinned" : "free"),
                       .files = &quick};
    train_on_threads(options, 1, [&] {
      others = !PinnedThreads(true).pinned();
      on_each_thread([&](int thread) {
        if (thread == 1) bound = available_processors() == 1;
      });
      return true;
    });
    EXPECT_TRUE(pin ? bound || others : !bound);
    on_each_thread([&](int) { EXPECT_EQ(available_processors(), threads) << "the run has ended"; });
  }
  set_compute_threads(threads);
}

TEST(Contract, ExtendingKeepsTheSchedule) {
  const TinyRun tiny;
  tiny.train({"training.steps=4"});
  RunOptions longer{.config = tiny.config({"training.steps=8"})};
  EXPECT_TRUE(contains(refusal(tiny, longer), "training.steps"));
  longer.accept_changes = true;
  EXPECT_EQ(tiny.train_with(longer).step, 8);
  tiny.train({"training.steps=8", "schedule.steps=4"}, "whole");
  expect_same_bits(bits_of(tiny.folder(), 8), bits_of(tiny.folder("whole"), 8));
  const MetricsLog log = metrics_of(tiny.folder());
  EXPECT_EQ(log.steps, metrics_of(tiny.folder("whole")).steps);
  for (size_t i = 4; i < 8; ++i)
    EXPECT_DOUBLE_EQ(log.lr[i], 1e-3) << "the rate stays constant after the schedule's end";
  EXPECT_EQ(read_file(tiny.folder() / "final/model.safetensors"),
            read_file(tiny.folder("whole") / "final/model.safetensors"));
}

TEST(Contract, ResumeFromANamedCheckpoint) {
  const TinyRun tiny;
  const std::vector<std::string> all{"checkpoint.keep_last=9"};
  tiny.train(all);
  const auto last = bits_of(tiny.folder(), 6);
  const Path second = tiny.folder() / "checkpoints/step-00000002";
  // In the same folder: later checkpoints are renamed, so "auto" does not resume from them.
  RunOptions back{.config = tiny.config(all), .resume = second.string()};
  const TrainResult stopped = tiny.train_with(back, 1);
  EXPECT_EQ(stopped.step, 3);
  EXPECT_TRUE(std::filesystem::exists(tiny.folder() / "checkpoints/step-00000006.discarded/manifest.json"));
  EXPECT_EQ(tiny.train(all).step, 6);
  expect_same_bits(bits_of(tiny.folder(), 6), last);
  EXPECT_EQ(metrics_of(tiny.folder()).steps.size(), 6u);
  // In a new folder.
  RunOptions other{.config = tiny.config({}, "other"), .resume = second.string()};
  EXPECT_EQ(tiny.train_with(other).step, 6);
  expect_same_bits(bits_of(tiny.folder("other"), 6), last);
  EXPECT_TRUE(std::filesystem::exists(tiny.folder("other") / "checkpoints/step-00000002"));
  // A run's folder means its newest checkpoint; model directories and missing folders are refused.
  EXPECT_EQ(
      tiny.train_with(RunOptions{.config = tiny.config({}, "third"), .resume = tiny.folder().string()}).step,
      6);
  EXPECT_TRUE(
      contains(refusal(tiny, {.config = tiny.config({}, "x"), .resume = (tiny.folder() / "final").string()}),
               "model.from"));
  refusal(tiny, {.config = tiny.config({}, "x"), .resume = tiny.path("nowhere").string()});
  EXPECT_TRUE(contains(refusal(tiny, {.config = tiny.config({"run.seed=3"}, "y"), .resume = second.string()}),
                       "run.seed"));
}

TEST(Contract, ADataFileThatChangedNeedsConsent) {
  const TinyRun tiny;
  tiny.train({}, "run", 2);
  put_tokens(tiny.path("train.bin"), tiny_tokens(6000, 8));
  const std::string message = refusal(tiny, {.config = tiny.config()});
  EXPECT_TRUE(contains(message, "training tokens") && contains(message, "--accept-changes")) << message;
  EXPECT_EQ(tiny.train_with(RunOptions{.config = tiny.config(), .accept_changes = true}).step, 6);
}

// A tokenizer trained by the program stays with the run even if the text changes.
TEST(Contract, TheTokenizerOfARunStays) {
  const TinyRun tiny;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the cat " + std::to_string(i * 7919 % 1000) + " sat on the mat\n";
  put_file(tiny.path("a.txt"), text);
  const std::string train = "data.train=[\"" + tiny.path("a.txt").string() + "\"]";
  tiny.train({train}, "run", 3);
  tiny.train({train}, "whole");
  const auto tokenizer = read_file(tiny.folder() / "checkpoints/step-00000003/tokenizer.json");
  tiny.train({train});
  expect_same_bits(bits_of(tiny.folder(), 6), bits_of(tiny.folder("whole"), 6));
  size_t token_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tiny.folder() / "data"))
    token_files += entry.path().extension() == ".bin";
  EXPECT_EQ(token_files, 1u) << "a resume reuses the tokens";
  put_file(tiny.path("a.txt"), text + "a dog came\n");
  RunOptions longer{.config = tiny.config({train, "training.steps=7"}), .accept_changes = true};
  EXPECT_EQ(tiny.train_with(longer).step, 7);
  EXPECT_EQ(read_file(tiny.folder() / "checkpoints/step-00000007/tokenizer.json"), tokenizer);
}

TEST(Contract, TwoRunsInOneFolder) {
  const TinyRun tiny;
  std::string message;
  train_on_threads({.config = tiny.config()}, 1, [&] {
    if (message.empty()) message = refusal(tiny, {.config = tiny.config()});
    return false;
  });
  EXPECT_TRUE(contains(message, "lock") || contains(message, "another")) << message;
}

TEST(Contract, ADryRunTrainsNothing) {
  const TinyRun tiny;
  EXPECT_EQ(tiny.train_with(RunOptions{.config = tiny.config(), .dry_run = true}).end, RunEnd::kDryRun);
  EXPECT_FALSE(std::filesystem::exists(tiny.folder() / "run.toml"));
  EXPECT_FALSE(std::filesystem::exists(tiny.folder() / "checkpoints"));
}

}  // namespace
}  // namespace strata::training
