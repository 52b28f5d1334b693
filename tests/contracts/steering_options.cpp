// Contracts of strata stop, save, set and branch.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "base/json.h"
#include "contracts/contract.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

// A run of the desk on a thread, until it is stopped.
class RunningDesk {
 public:
  RunningDesk() {
    desk_.write_texts();
    desk_.write_run();
    const auto config = config::read_run_config(
        desk_.path("run.toml"),
        Sets{"run.folder=\"" + desk_.path("run").string() + "\"",
             "data.train=\"" + desk_.path("corpus.jsonl").string() + "\"",
             "tokenizer.path=\"" + desk_.path("tokenizer.json").string() + "\"", "training.steps=10000",
             "checkpoint.interval=\"never\"", "eval.interval=\"never\""});
    result_ = std::async(std::launch::async, [this, config] {
      FaultyFileSystem quick;
      return training::train_on_threads({.config = config, .files = &quick}, 1,
                                        [this] { return ends_.load(); });
    });
    while (!desk_.exists("run/control") &&
           result_.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready) {
    }
  }
  ~RunningDesk() { ends_ = true; }

  const Desk& desk() const { return desk_; }
  training::TrainResult result() { return result_.get(); }
  // Waits until control.jsonl has this many lines.
  std::vector<json> answers(size_t count) const {
    for (int i = 0; i < 2000; ++i) {
      if (desk_.exists("run/control.jsonl") && desk_.lines("run/control.jsonl").size() >= count) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return desk_.lines("run/control.jsonl");
  }

 private:
  Desk desk_;
  std::atomic<bool> ends_ = false;
  std::future<training::TrainResult> result_;
};

void control_verbs(const std::string&) {
  RunningDesk running;
  const Desk& desk = running.desk();
  const json set = desk.object("set run optimizer.lr=5e-4 log.interval_steps=100 --json");
  EXPECT_EQ(set["set"], (json{{"optimizer.lr", 5e-4}, {"log.interval_steps", 100}}));
  EXPECT_EQ(set["result"], "done");
  EXPECT_TRUE(has(desk.refused("set run optimizer.lr=-1"), "the run refused"));
  desk.refused("set run");
  desk.refused("set nowhere optimizer.lr=1");
  const json saved = desk.object("save run --json");
  char name[64];
  std::snprintf(name, sizeof name, "run/checkpoints/step-%08lld/manifest.json",
                static_cast<long long>(saved["at_step"].get<int64_t>()));
  EXPECT_TRUE(desk.exists(name));
  EXPECT_EQ(desk.strata("save run").code, 0);
  // Without waiting, the answer comes later.
  for (const char* words : {"set run optimizer.lr=1e-4 --no-wait", "save run --no-wait"})
    EXPECT_EQ(desk.strata(words).code, 0) << words;
  EXPECT_EQ(running.answers(6).size(), 6u);
  const json sent = desk.object("stop run --no-wait --json");
  EXPECT_EQ(sent["result"], "sent");
  const training::TrainResult result = running.result();
  EXPECT_EQ(result.end, training::RunEnd::kInterrupted);
  const json last = desk.lines("run/control.jsonl").back();
  EXPECT_EQ(last["id"], sent["id"]);
  EXPECT_EQ(last["at_step"], result.step);
  desk.refused("stop run");
}

void replay(const std::string&) {
  Desk desk;
  desk.write_texts();
  desk.write_run();
  EXPECT_EQ(desk.strata("train run.toml --set run.folder=\"run\"").code, 0);
  const json same = desk.object("replay run --step 2 --json");
  EXPECT_EQ(same,
            (json{{"step", 2}, {"same", true}, {"first_difference", nullptr}, {"first_nonfinite", nullptr}}));
  EXPECT_EQ(desk.strata("replay run --step 1 --ranks 1").code, 0);
  EXPECT_TRUE(has(desk.refused("replay run --step 1 --ranks 2"), "the run has 1 ranks"));
  EXPECT_TRUE(has(desk.refused("replay run --step 99"), "give one of them"));
  desk.refused("replay nowhere --step 1");
  // Another loss on record than the step has.
  const std::string metrics = read_file(desk.path("run/metrics.jsonl"));
  const size_t at = metrics.find("\"loss\":", metrics.find("{\"step\":2")) + 7;
  put_file(desk.path("run/metrics.jsonl"), metrics.substr(0, at) + "9" + metrics.substr(at));
  const Outcome other = desk.strata("replay run --step 2 --json");
  EXPECT_EQ(other.code, 3);
  EXPECT_EQ(other.parsed()["same"], false);
  EXPECT_TRUE(other.parsed()["first_difference"].is_null()) << "this machine computes the same twice";
}

void stop(const std::string&) {
  RunningDesk running;
  const json stopped = running.desk().object("stop run --json");
  const training::TrainResult result = running.result();
  EXPECT_EQ(result.end, training::RunEnd::kInterrupted);
  EXPECT_EQ(stopped["at_step"], result.step);
  running.desk().refused("stop run");
  running.desk().refused("stop");
}

void branch(const std::string&) {
  const Desk desk;
  desk.train();
  const json made = desk.object("branch run@1 new --set optimizer.lr=1e-30 --json");
  EXPECT_EQ(made["step"], 1);
  ASSERT_EQ(made["changes"].size(), 1u);
  EXPECT_EQ(made["changes"][0]["key"], "optimizer.lr");
  EXPECT_EQ(made["command"], "strata train new");
  EXPECT_EQ(desk.strata("train new").code, 0);
  // At this rate the second step changes nothing.
  EXPECT_TRUE(same(tensors_in(desk.path("new/checkpoints/step-00000002")),
                   tensors_in(desk.path("run/checkpoints/step-00000001"))));
  EXPECT_EQ(desk.strata("branch run@latest other").out, "strata train other\n");
  EXPECT_TRUE(has(desk.refused("branch run@5 more"), "the nearest is that of step 2"));
  desk.refused("branch run@1 new");
  desk.refused("branch run@1 more --set model.hidden_size=64");
  EXPECT_FALSE(desk.exists("more"));
}

}  // namespace

Contracts steering_options() {
  return {{"stop RUN", stop},
          {"stop --no-wait", control_verbs},
          {"stop --json", stop},
          {"save RUN", control_verbs},
          {"save --no-wait", control_verbs},
          {"save --json", control_verbs},
          {"set RUN", control_verbs},
          {"set KEY=VALUE", control_verbs},
          {"set --no-wait", control_verbs},
          {"set --json", control_verbs},
          {"replay RUN", replay},
          {"replay --step", replay},
          {"replay --ranks", replay},
          {"replay --json", replay},
          {"branch RUN@STEP", branch},
          {"branch NEW", branch},
          {"branch --set", branch},
          {"branch --json", branch}};
}

}  // namespace strata::contracts
