// strata stop, save, set and branch, on runs in this process and on the program itself.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "cli/actions.h"
#include "fixtures/cli_fixture.h"
#include "fixtures/tiny_run.h"
#include "library/branch.h"
#include "library/steering.h"
#include "train/find_documents.h"

namespace strata::library {
namespace {

using nlohmann::json;
using training::RunEnd;
using What = training::Request::What;

// Far more steps than a test takes; no evaluations; saves only on request.
const std::vector<std::string> kLongRun{"training.steps=10000", "checkpoint.interval=\"never\"",
                                        "schedule.name=\"constant\"", "schedule.warmup_steps=0"};

// A run on its own threads, which a test steers from this one.
class SteeredRun {
 public:
  SteeredRun(const training::TinyRun& tiny, int ranks, const std::vector<std::string>& sets = {})
      : folder_(tiny.folder()) {
    std::vector<std::string> all = kLongRun;
    all.insert(all.end(), sets.begin(), sets.end());
    result_ = std::async(std::launch::async, [this, ranks, config = tiny.config(all)] {
      FaultyFileSystem quick;
      const training::RunOptions options{.config = config, .files = &quick};
      return training::train_on_threads(options, ranks, [this] { return abandoned_.load(); });
    });
    while (steps() < 2 && !ended()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ~SteeredRun() { abandoned_ = true; }

  bool ended() const { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  training::TrainResult result() { return result_.get(); }
  size_t steps() const {
    std::error_code error;
    if (!std::filesystem::exists(folder_ / "metrics.jsonl", error)) return 0;
    const std::string text = read_file(folder_ / "metrics.jsonl");
    size_t count = 0;
    for (size_t at = text.find("{\"step\""); at != text.npos; at = text.find("{\"step\"", at + 1)) ++count;
    return count;
  }

  // The answer to a request.
  json ask(What what, const std::vector<std::string>& assignments = {}) const {
    const SentRequest sent = send_request(folder_, make_request(what, assignments));
    return parse_json<json>(wait_for_answer(sent, [] { return false; }).line);
  }
  std::string refusal(const std::vector<std::string>& assignments) const {
    try {
      ask(What::kSet, assignments);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

 private:
  Path folder_;
  std::atomic<bool> abandoned_ = false;
  std::future<training::TrainResult> result_;
};

// One step that all ranks agree on: the rates before and after it, in metrics and in the journal of requests.
TEST(Steering, SettingsApplyFromOneStepOn) {
  for (const int ranks : {1, 2}) {
    const training::TinyRun tiny;
    const Path folder = tiny.folder();
    SteeredRun run(tiny, ranks);
    const json set = run.ask(What::kSet, {"optimizer.lr=3e-3", "training.clip_grad_norm=0.5",
                                          "data.skip=[[0, 7], [100000, 200000]]"});
    EXPECT_EQ(set["result"], "done");
    EXPECT_EQ(set["set"]["optimizer.lr"], 3e-3);
    const auto first = set["at_step"].get<size_t>();
    const json save = run.ask(What::kSave);
    const auto saved = save["at_step"].get<int64_t>();
    EXPECT_GE(saved + 1, static_cast<int64_t>(first));
    EXPECT_TRUE(
        checkpoint::verify_checkpoint(checkpoint::resolve_model(folder.string() + "@latest")).empty());
    const json stop = run.ask(What::kStop);
    EXPECT_EQ(stop["do"], "stop");
    ASSERT_TRUE(run.ended() || !is_locked(folder / ".lock"));
    const auto result = run.result();
    EXPECT_EQ(result.end, RunEnd::kInterrupted);
    EXPECT_EQ(stop["at_step"], result.step);
    EXPECT_EQ(checkpoint::read_manifest(checkpoint::resolve_model(folder.string())).step, result.step);

    const training::MetricsLog log = training::metrics_of(folder);
    for (size_t i = 0; i < log.lr.size(); ++i) EXPECT_DOUBLE_EQ(log.lr[i], i + 1 < first ? 1e-2 : 3e-3) << i;
    const std::vector<double> samples = training::values_of(folder, "first_sample");
    EXPECT_EQ(samples.back(), 8.0 * static_cast<double>(samples.size() - 1))
        << "samples that were trained on have no effect";
    std::vector<std::string> steered;
    for (const json& event : log.events) {
      if (event["event"] != "steered") continue;
      EXPECT_EQ(event["at_step"], first);
      EXPECT_EQ(event["by"], set["by"]);
      steered.push_back(event["key"].get<std::string>() + " " + event["after"].get<std::string>());
    }
    EXPECT_EQ(steered, (std::vector<std::string>{"data.skip [[0, 7], [100000, 200000]]",
                                                 "training.clip_grad_norm 0.5", "optimizer.lr 0.003"}));
  }
}

// A run that is stopped after a change and resumed by the same command keeps it, although run.toml does not have
// it, and a branch begins with it unless it has its own.
TEST(Steering, AResumedRunAndABranchKeepTheChanges) {
  const training::TinyRun tiny;
  const Path folder = tiny.folder();
  {
    SteeredRun run(tiny, 1);
    run.ask(What::kSet, {"optimizer.lr=3e-3", "checkpoint.keep_last=1"});
    run.ask(What::kStop);
    run.result();
  }
  const size_t before = training::values_of(folder, "lr").size();
  tiny.train(kLongRun, "run", 3);
  const std::vector<double> rates = training::values_of(folder, "lr");
  ASSERT_EQ(rates.size(), before + 3);
  EXPECT_DOUBLE_EQ(rates.back(), 3e-3);
  EXPECT_EQ(config::read_stored_config(folder)->optimizer.lr, 1e-2);

  EXPECT_TRUE(make_branch(folder.string() + "@latest", tiny.folder("same"), {}).changes.empty());
  EXPECT_EQ(config::read_stored_config(tiny.folder("same"))->optimizer.lr, 3e-3);
  make_branch(folder.string() + "@latest", tiny.folder("other"), {"optimizer.lr=1e-4"});
  for (const auto& [name, rate] : {std::pair("same", 3e-3), std::pair("other", 1e-4)}) {
    tiny.train_with({.config = *config::read_asked_config(tiny.folder(name))}, 2);
    EXPECT_DOUBLE_EQ(training::values_of(tiny.folder(name), "lr").back(), rate) << name;
  }
}

// Samples that are still to come, and intervals of saves and evaluations.
TEST(Steering, SkippedSamplesAndIntervalsTakeEffect) {
  const training::TinyRun tiny;
  const Path folder = tiny.folder();
  SteeredRun run(tiny, 1, {"data.valid_fraction=0.05", "eval.interval=100000"});
  const json set =
      run.ask(What::kSet, {"data.skip=[[0, 79999]]", "checkpoint.interval=3 steps", "checkpoint.keep_last=2",
                           "checkpoint.keep_best=0", "eval.interval=4"});
  const auto first = set["at_step"].get<size_t>();
  while (run.steps() < first + 12) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  run.ask(What::kStop);
  EXPECT_EQ(run.result().end, RunEnd::kInterrupted);
  const std::vector<double> samples = training::values_of(folder, "first_sample");
  EXPECT_LT(samples[first - 2], 80000);
  EXPECT_EQ(samples[first - 1], 80000);
  // Also for `strata data find`, which reads the journal.
  int64_t found = 0;
  for (const size_t step : {first - 1, first}) {
    const training::FindOptions options{.run = folder, .step = static_cast<int64_t>(step)};
    training::find_documents(options, [&](const training::FoundDocument& one) {
      ++found;
      EXPECT_EQ(one.what.sample >= 80000, step == first) << one.what.sample;
    });
  }
  EXPECT_GE(found, 16);
  EXPECT_GE(training::values_of(folder, "eval/valid/loss").size(), 3u);
  EXPECT_EQ(checkpoint::list_checkpoints(folder / "checkpoints").size(), 2u);
}

TEST(Steering, RefusalsLeaveTheRunUnchanged) {
  const training::TinyRun tiny;
  const Path folder = tiny.folder();
  SteeredRun run(tiny, 1);
  EXPECT_NE(
      run.refusal({"optimizer.lr=5e-4", "log.interval_steps=0"}).find("the run refused: [set] log.interval"),
      std::string::npos);
  EXPECT_NE(run.refusal({"eval.interval=5"}).find("started without evaluations"), std::string::npos);
  EXPECT_NE(run.refusal({"training.steps=5"}).find("cannot change while"), std::string::npos);
  for (const auto& [name, text] :
       {std::pair("half", "{\"id\": \"half\", \"do\": "),
        std::pair("unknown", R"({"id": "unknown", "by": "me", "set": {"model.hidden_size": 64}})")}) {
    put_file(folder / "control/.new", text);
    std::filesystem::rename(folder / "control/.new", folder / "control" / (std::string(name) + ".json"));
  }
  // A request that comes after them is answered after them.
  EXPECT_EQ(run.ask(What::kSave)["result"], "done");
  const std::string answers = read_file(folder / "control.jsonl");
  EXPECT_NE(answers.find(R"("id":"half")"), std::string::npos);
  EXPECT_NE(answers.find(R"("set":{"model.hidden_size":64},"result":"refused: )"), std::string::npos);
  // The user no longer waits.
  const SentRequest sent = send_request(folder, make_request(What::kStop));
  EXPECT_THROW(wait_for_answer(sent, [] { return true; }), Interrupted);
  try {
    run.ask(What::kStop);
  } catch (const ConfigError&) {  // the run had read the first request
  }
  run.result();
  const training::MetricsLog log = training::metrics_of(folder);
  EXPECT_EQ(training::find_event(log, "steered"), nullptr);
  for (const double lr : log.lr) EXPECT_DOUBLE_EQ(lr, 1e-2);
  EXPECT_THROW(send_request(folder, make_request(What::kStop)), ConfigError) << "the run has ended";
  EXPECT_THROW(send_request(tiny.folder("none"), make_request(What::kStop)), ConfigError);
}

TEST(Branching, StartsFromACheckpointWithOtherSettings) {
  const training::TinyRun tiny;
  tiny.train();
  const std::string run = tiny.folder().string();
  const Path target = tiny.folder("new");
  const Branch branch = make_branch(run + "@4", target, {"optimizer.lr=2e-3", "training.steps=8"});
  EXPECT_EQ(branch.step, 4);
  EXPECT_TRUE(branch.linked);
  ASSERT_EQ(branch.changes.size(), 2u);
  EXPECT_EQ(branch.command, "strata train " + target.string());
  training::expect_same_bits(training::bits_of(target, 4), training::bits_of(run, 4));
  const auto config = config::read_asked_config(target);
  EXPECT_EQ(config->run.name, "new");
  tiny.train_with({.config = *config});
  const training::FinalBits made = training::bits_of(target, 8);
  EXPECT_FALSE(made.model.empty());
  const std::vector<double> rates = training::values_of(target, "lr");
  EXPECT_EQ(rates.size(), 4u) << "steps 5 to 8";
  EXPECT_LT(rates.front(), 2.1e-3);

  // The same settings are the same run.
  make_branch(run + "@4", tiny.folder("same"), {});
  tiny.train_with({.config = *config::read_asked_config(tiny.folder("same"))});
  training::expect_same_bits(training::bits_of(tiny.folder("same"), 6), training::bits_of(run, 6));
  EXPECT_EQ(make_branch(run + "@latest", tiny.folder("last"), {}).step, 6);
}

TEST(Branching, RefusesWhatAResumeRefuses) {
  const training::TinyRun tiny;
  tiny.train();
  const std::string run = tiny.folder().string();
  const auto refusal = [&](const std::string& source, const std::vector<std::string>& sets,
                           const std::string& target = "new") {
    try {
      make_branch(source, tiny.folder(target), sets);
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::filesystem::exists(tiny.folder(target)), target == "run");
      return std::string(error.what());
    }
    ADD_FAILURE() << source << " was not refused";
    return std::string();
  };
  EXPECT_TRUE(contains(refusal(run + "@3", {}), "the nearest are those of steps 2 and 4"));
  EXPECT_TRUE(contains(refusal(run + "@300", {}), "the nearest is that of step 6"));
  EXPECT_TRUE(contains(refusal(run + "@soon", {}), "expected @STEP, @latest or @best"));
  EXPECT_TRUE(contains(refusal(run, {}), "expected RUN@STEP"));
  EXPECT_TRUE(contains(refusal(run + "@4", {"model.hidden_size=64"}), "cannot change during a run"));
  EXPECT_TRUE(contains(refusal(run + "@4", {"run.seed=5"}), "cannot change during a run"));
  EXPECT_TRUE(contains(refusal(run + "@4", {"training.stepz=5"}), "did you mean"));
  EXPECT_TRUE(contains(refusal(run + "@4", {"run.folder=x"}), "is the new run's folder"));
  EXPECT_TRUE(contains(refusal(run + "@4", {}, "run"), "exists already"));
  // One flipped byte.
  const Path weights = tiny.folder() / "checkpoints/step-00000004/model.safetensors";
  std::string bytes = read_file(weights);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::filesystem::remove(weights);
  put_file(weights, bytes);
  EXPECT_THROW(make_branch(run + "@4", tiny.folder("new"), {}), DataError);
  EXPECT_FALSE(std::filesystem::exists(tiny.folder("new")));
}

}  // namespace

// Exit codes and output of the program.
class SteeringProgram : public CliTest {
 protected:
  void start() {
    write("run.toml", tiny_.toml());
    std::string sets;
    for (const std::string& set : kLongRun) sets += " --set '" + set + "'";
    const std::string command = "cd '" + folder_.string() +
                                "' && { timeout 120 '" STRATA_PROGRAM "' train run.toml" + sets +
                                " >train.out 2>&1; echo $? >code; } &";
    ASSERT_EQ(std::system(command.c_str()), 0);
    const double begin = monotonic_seconds();
    while (!std::filesystem::exists(tiny_.folder() / "control") && monotonic_seconds() - begin < 60)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::string run_code() const {
    for (int i = 0; i < 1000; ++i) {
      std::error_code error;
      if (std::filesystem::exists(folder_ / "code", error) && !read_file(folder_ / "code").empty())
        return read_file(folder_ / "code");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return "none";
  }

  training::TinyRun tiny_;
};

TEST_F(SteeringProgram, StopEndsARunWith130) {
  start();
  const std::string run_folder = "'" + tiny_.folder().string() + "'";
  EXPECT_EQ(run("set " + run_folder + " optimizer.lr=1e-3 --no-wait").code, 0);
  const Outcome refused = run("set " + run_folder + " log.interval_steps=0");
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_TRUE(contains(refused.err, "the run refused: [set] log.interval_steps: found 0")) << refused.err;
  const Outcome stopped = run("stop " + run_folder + " --json");
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_EQ(parse_json<json>(stopped.out)["do"], "stop");
  EXPECT_EQ(run_code(), "130\n") << read_file(folder_ / "train.out");
  EXPECT_TRUE(contains(read_file(folder_ / "train.out"), "run the same command again to resume"));
  const Outcome again = run("save " + run_folder);
  EXPECT_EQ(again.code, 2);
  EXPECT_TRUE(contains(again.err, "is not running")) << again.err;
  const Outcome branch = run("branch " + run_folder + "@latest new --json");
  EXPECT_EQ(branch.code, 0) << branch.err;
  EXPECT_EQ(parse_json<json>(branch.out)["command"], "strata train new");
}

}  // namespace strata::library
