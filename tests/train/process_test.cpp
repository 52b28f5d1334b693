// The program stopped and killed by signals: SIGTERM and SIGINT save and exit; SIGKILL at any moment loses
// only the time since the last save.
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "fixtures/program_process.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

class ProcessTest : public testing::Test {
 protected:
  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& sets = {}) const {
    const Path file = tiny_.path(name + ".toml");
    put_file(file, tiny_.toml(name));
    std::vector<std::string> words{"train", file.string(),
                                   "--set", "training.steps=" + std::to_string(steps_),
                                   "--set", "checkpoint.interval=" + std::to_string(steps_ / 8)};
    for (const std::string& set : sets_) {
      words.push_back("--set");
      words.push_back(set);
    }
    for (const std::string& set : sets) {
      words.push_back("--set");
      words.push_back(set);
    }
    return words;
  }
  int run(const std::vector<std::string>& words) const { return Process(words, tiny_.path("output")).wait(); }
  std::string output() const { return read_file(tiny_.path("output")); }

  // Waits until the run has made a step.
  void wait_for_a_step(Process& process, const std::string& name) const {
    const Path metrics = tiny_.folder(name) / "metrics.jsonl";
    while (!process.ended()) {
      std::error_code none;
      if (std::filesystem::exists(metrics, none) && read_file(metrics).find("{\"step\"") != std::string::npos)
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "ended before its first step: " << output();
  }

  void expect_equal_runs(const std::string& name) const {
    expect_same_bits(bits_of(tiny_.folder(name), steps_), bits_of(tiny_.folder("whole"), steps_), name);
    EXPECT_EQ(metrics_of(tiny_.folder(name)).steps, metrics_of(tiny_.folder("whole")).steps) << name;
    EXPECT_TRUE(read_file(tiny_.folder(name) / "final/model.safetensors") ==
                read_file(tiny_.folder("whole") / "final/model.safetensors"));
  }

  // Sends SIGKILL after a random time of at most a whole run, until `kills` of them have hit.
  void kill_and_resume(int kills, uint64_t seed) {
    const double begin = monotonic_seconds();
    ASSERT_EQ(run(command("whole")), 0) << output();
    const double whole = monotonic_seconds() - begin;
    int hits = 0;
    int round = 0;
    int finished = 0;
    std::string name = "killed-0";
    for (uint64_t draw = 0; hits < kills; ++draw) {
      const double share = philox({seed, 2}, draw)[0] * 0x1p-32;
      Process process(command(name), tiny_.path("output"));
      std::this_thread::sleep_for(std::chrono::duration<double>(share * whole));
      process.send(SIGKILL);
      const int code = process.wait();
      if (code == -SIGKILL) {
        ++hits;
        continue;
      }
      ASSERT_EQ(code, 0) << output();
      expect_equal_runs(name);
      ++finished;
      std::filesystem::remove_all(tiny_.folder(name));
      name = "killed-" + std::to_string(++round);
    }
    ASSERT_EQ(run(command(name)), 0) << output();
    expect_equal_runs(name);
    std::printf("%d kills, %d runs finished between them\n", hits, finished);
  }

  TinyRun tiny_;
  int64_t steps_ = 40;
  std::vector<std::string> sets_;  // of every run
};

#ifdef STRATA_MANY_KILLS

TEST_F(ProcessTest, AHundredKills) {
  kill_and_resume(100, 11);
}

#else

TEST_F(ProcessTest, FifteenKills) {
  kill_and_resume(15, 3);
}

// All optimizers in one run, on different tensors.
TEST_F(ProcessTest, KillsUnderEveryOptimizer) {
  sets_ = {
      "optimizer.group=["
      "{match='*q_proj*', name='muon'}, {match='*o_proj*', name='lion'}, {match='*up_proj*', "
      "name='adafactor'}, "
      "{match='*down_proj*', name='adamw8bit'}]"};
  kill_and_resume(8, 5);
  const std::string resolved = read_file(tiny_.folder("whole") / "run.toml");
  for (const char* name : {"muon", "lion", "adafactor", "adamw8bit"})
    EXPECT_NE(resolved.find(name), std::string::npos) << resolved;
}

TEST_F(ProcessTest, ASignalSavesAndTheRunResumes) {
  steps_ = 600;  // long enough for a signal to arrive in the middle
  ASSERT_EQ(run(command("whole")), 0) << output();
  const std::pair<int, int> signals[] = {{SIGTERM, 143}, {SIGINT, 130}};
  for (const auto& [signal, code] : signals) {
    const std::string name = "signal-" + std::to_string(signal);
    {
      Process process(command(name), tiny_.path("output"));
      wait_for_a_step(process, name);
      process.send(signal);
      EXPECT_EQ(process.wait(), code) << output();
      EXPECT_NE(output().find("is saved in"), std::string::npos) << output();
      EXPECT_NE(output().find("the same command"), std::string::npos) << output();
    }
    const MetricsLog log = metrics_of(tiny_.folder(name));
    const auto* event = find_event(log, "interrupt");
    ASSERT_NE(event, nullptr);
    EXPECT_LT(log.steps.size(), static_cast<size_t>(steps_));
    char step[32];
    std::snprintf(step, sizeof step, "step-%08zu", log.steps.size());
    EXPECT_EQ(read_file(tiny_.folder(name) / "checkpoints/latest"), std::string(step) + "\n");
    // The stored configuration resumes it as well.
    ASSERT_EQ(run({"train", (tiny_.folder(name) / "run.toml").string()}), 0) << output();
    expect_equal_runs(name);
  }
}

// During tokenizer training and tokenization there is nothing to save: the first signal ends the run and
// leaves no incomplete file under its final name.
TEST_F(ProcessTest, ASignalBeforeTheFirstStepEndsTheRun) {
  std::string text;
  for (uint64_t at = 0; text.size() < 48'000'000; ++at)
    text += "w" + std::to_string(philox({9, 9}, at)[0] % 1000000) + (at % 10 == 0 ? "\n" : " ");
  put_file(tiny_.path("text.txt"), text);
  put_file(tiny_.path("short.txt"), text.substr(0, 100'000));
  const std::string tokenizer = tiny_.path("tokenizer.json").string();
  ASSERT_EQ(run({"tokenizer", "train", "--input", tiny_.path("short.txt").string(), "--vocab-size", "300",
                 "--output", tokenizer}),
            0)
      << output();
  const std::string data = "data.train=[\"" + tiny_.path("text.txt").string() + "\"]";
  const auto names_in = [&](const std::string& name) {
    std::string names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(tiny_.folder(name) / "data", none))
      names += entry.path().filename().string() + " ";
    return names;
  };
  struct Case {
    std::string name;
    std::vector<std::string> sets;
    int signal, code;
  };
  const Case cases[] = {{"tokenizer", {data}, SIGINT, 130},
                        {"tokens", {data, "tokenizer.path=" + tokenizer}, SIGTERM, 143}};
  for (const Case& one : cases) {
    Process process(command(one.name, one.sets), tiny_.path("output"));
    const std::string sign =
        one.name == "tokens" ? ".part" : "";  // a file that exists during the interrupted work
    while (!process.ended() && (!std::filesystem::exists(tiny_.folder(one.name) / "data") ||
                                names_in(one.name).find(sign) == std::string::npos))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_FALSE(process.ended()) << output();
    process.send(one.signal);
    EXPECT_EQ(process.wait(), one.code) << output();
    EXPECT_NE(output().find("stopped before the first step"), std::string::npos) << output();
    EXPECT_FALSE(std::filesystem::exists(tiny_.folder(one.name) / "metrics.jsonl"));
    for (const char* ending : {".bin ", ".json ", ".part", ".documents"})
      EXPECT_EQ(names_in(one.name).find(ending), std::string::npos) << names_in(one.name);
  }
  // `strata tokenizer train`.
  const Path trained = tiny_.path("trained.json");
  Process process({"tokenizer", "train", "--input", tiny_.path("text.txt").string(), "--vocab-size", "30000",
                   "--output", trained.string()},
                  tiny_.path("output"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  process.send(SIGINT);
  const int code = process.wait();
  EXPECT_TRUE(code == 130 || code == -SIGINT) << code << output();  // -SIGINT: before it had a handler
  EXPECT_FALSE(std::filesystem::exists(trained));
}

// A step takes seconds: the first signal waits for its end, the second does not.
TEST_F(ProcessTest, TheSecondSignalDoesNotWait) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer delivers a signal at the next system call, after the step";
#endif
  auto words = command("slow", {"training.global_batch_size=65536", "training.micro_batch_size=64"});
  Process process(words, tiny_.path("output"));
  const Path stored = tiny_.folder("slow") / "metrics.jsonl";
  while (!std::filesystem::exists(stored) && !process.ended())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  process.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(process.ended()) << output();
  process.send(SIGTERM);
  EXPECT_EQ(process.wait(), 143);
  EXPECT_FALSE(std::filesystem::exists(tiny_.folder("slow") / "checkpoints"));
}

TEST_F(ProcessTest, TheTimeLimitIs75) {
  EXPECT_EQ(run(command("limit", {"run.max_time=\"0.0001s\""})), 75) << output();
  EXPECT_NE(find_event(metrics_of(tiny_.folder("limit")), "time_limit"), nullptr);
}

TEST_F(ProcessTest, AFinishedRunPrintsHowToExtendIt) {
  ASSERT_EQ(run(command("whole")), 0);
  ASSERT_EQ(run(command("whole")), 0);
  EXPECT_NE(output().find("--set training.steps=80 --accept-changes"), std::string::npos) << output();
}

TEST_F(ProcessTest, TheSecondRunInAFolderIsRefused) {
  Process first(command("both", {"training.steps=1000000"}), tiny_.path("first"));
  wait_for_a_step(first, "both");
  EXPECT_EQ(run(command("both")), 2);
  EXPECT_NE(output().find("both"), std::string::npos) << output();
}

#endif

}  // namespace
}  // namespace strata::training
