// Faults that runs inject into themselves: their effects on one rank and on several, each once in a run.
#include "train/injector.h"

#include <cmath>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "config/plan.h"
#include "config/resolve.h"
#include "fixtures/tiny_run.h"
#include "train/value_faults.h"

namespace strata::training {
namespace {

class Injected : public testing::Test {
 protected:
  // Rules of recovery would change what follows a fault.
  static Sets with(const std::string& entries, const Sets& more = {}) {
    return Sets{"debug.inject=[" + entries + "]", "recovery.rules=\"none\"", "recovery.snapshot=\"never\""} +
           more;
  }
  static std::string quoted(const std::string& entry) { return "\"" + entry + "\""; }

  void train(const std::string& name, const Sets& sets, int ranks = 1) const {
    tiny_.train_ranks(tiny_.config(sets, name), ranks);
  }
  // The message of the error that ends a run; empty: none.
  template <typename Error>
  std::string error_of(const std::string& name, const Sets& sets, int ranks = 1) const {
    try {
      train(name, sets, ranks);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  MetricsLog log(const std::string& name) const { return metrics_of(tiny_.folder(name)); }
  std::vector<nlohmann::json> injected(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const auto& event : log(name).events)
      if (event.at("event") == "injected") found.push_back(event);
    return found;
  }
  size_t marks(const std::string& name) const {
    const Path folder = tiny_.folder(name) / "injected";
    size_t count = 0;
    if (std::filesystem::exists(folder))
      for (const auto& file : std::filesystem::directory_iterator(folder))
        count += file.path().extension() == ".json" ? 1 : 0;
    return count;
  }
  // Forgets the checkpoints after a step, as if the run had died before them.
  void go_back(const std::string& name, int64_t step) const {
    const Path folder = tiny_.folder(name) / "checkpoints";
    std::filesystem::remove(folder / "latest");
    for (const auto& listed : checkpoint::list_checkpoints(folder))
      if (listed.step > step) std::filesystem::remove_all(listed.path);
    std::filesystem::remove_all(tiny_.folder(name) / "final");
  }
  void expect_same_runs(const std::string& a, const std::string& b) const {
    expect_same_bits(bits_of(tiny_.folder(a), 6), bits_of(tiny_.folder(b), 6), b);
    EXPECT_EQ(log(a).steps, log(b).steps) << b;
  }

  TinyRun tiny_;
};

// Layouts: one rank, two replicas, two shards of ZeRO 3, two tensor ranks, two stages.
struct InjectedLayout {
  int ranks;
  Sets sets;
};
const std::vector<InjectedLayout>& layouts() {
  static const std::vector<InjectedLayout> all{
      {1, {}},
      {2, {"parallel.replicate=2", "parallel.shard=1"}},
      {2, {"parallel.zero=3"}},
      {2, {"parallel.zero=1", "training.micro_batch_size=1"}},
      {2, {"parallel.tensor=2", "parallel.shard=1"}},
      {2, {"parallel.pipeline=2", "parallel.shard=1", "training.micro_batch_size=2"}},
  };
  return all;
}

// A value that is not finite ends the step in which it is read, on every layout and in every phase.
TEST_F(Injected, NanAndInfReachTheLossOrTheGradient) {
  int runs = 0;
  for (const InjectedLayout& layout : layouts()) {
    for (const char* kind : {"nan", "inf"}) {
      for (const char* phase : {"fwd", "bwd", "update"}) {
        // Both kinds everywhere on one rank; every phase on every layout.
        if (layout.ranks > 1 && (std::string(kind) == "inf") != (runs % 2 == 0) && runs % 3 == 1) continue;
        const std::string name = "run" + std::to_string(++runs), last = std::to_string(layout.ranks - 1);
        const std::string entry = std::string(kind) + "@step=3,rank=" + last + ",phase=" + std::string(phase);
        const std::string what = entry + " in " + testing::PrintToString(layout.sets);
        const std::string error =
            error_of<DivergedError>(name, with(quoted(entry), layout.sets), layout.ranks);
        const bool is_later = std::string(phase) == "update";
        EXPECT_NE(error.find(is_later ? "step 4" : "step 3"), std::string::npos) << what << ": " << error;
        const auto events = injected(name);
        ASSERT_EQ(events.size(), 1) << what;
        EXPECT_EQ(events[0].at("fault"), entry);
        EXPECT_EQ(events[0].at("rank"), layout.ranks - 1);
        EXPECT_EQ(events[0].at("phase"), phase);
        EXPECT_EQ(events[0].at("at_step"), 3);
        EXPECT_EQ(marks(name), 1);
      }
    }
  }
}

TEST_F(Injected, SpikeAndGarbageAreTheSameOnEveryLayout) {
  train("clean", {});
  const MetricsLog clean = log("clean");
  std::vector<MetricsLog> runs;
  const std::string entries = "\"spike@step=5\", \"garbage@step=2,for_steps=1\"";
  for (size_t i = 0; i < layouts().size(); ++i) {
    const std::string name = "run" + std::to_string(i);
    train(name, with(entries, layouts()[i].sets), layouts()[i].ranks);
    runs.push_back(log(name));
    EXPECT_EQ(injected(name).size(), 2);
    EXPECT_EQ(marks(name), 2);
  }
  const auto& loss = runs.front().loss;
  EXPECT_EQ(loss[0], clean.loss[0]);
  for (const size_t step : {1, 2}) EXPECT_NE(loss[step], clean.loss[step]) << step;
  EXPECT_GT(loss[4], 1.05 * clean.loss[4]) << "a spike";
  for (size_t i = 1; i < runs.size(); ++i) {
    for (size_t step = 0; step < 4; ++step)
      EXPECT_NEAR(runs[i].loss[step], loss[step], 1e-3) << testing::PrintToString(layouts()[i].sets) << step;
    // Each rank measures the root mean square of its shard.
    EXPECT_NEAR(runs[i].loss[4], loss[4], 0.1 * loss[4]) << testing::PrintToString(layouts()[i].sets);
  }
}

TEST_F(Injected, GarbageIsRandomValidTokens) {
  data::HostBatch batch;
  batch[Column::kSamples] = {7, 8};
  batch[Column::kTokens] = {1, 1, 1, 1, 1, 1};
  batch[Column::kTargets] = {1, 1, -1, 1, 1, 1};
  data::HostBatch same = batch, other = batch, step = batch;
  make_random(batch, 50, 1, 3);
  make_random(same, 50, 1, 3);
  EXPECT_EQ(batch.columns, same.columns);
  make_random(step, 50, 1, 4);
  EXPECT_NE(batch.columns, step.columns);
  const auto &tokens = batch[Column::kTokens], &targets = batch[Column::kTargets];
  for (const int32_t id : tokens) EXPECT_TRUE(id >= 0 && id < 50);
  EXPECT_EQ(targets[2], -1) << "no loss here";
  EXPECT_EQ(targets[0], tokens[1]);
  EXPECT_EQ(targets[4], tokens[5]);
  // Each row by its own sample, wherever it is.
  other[Column::kSamples] = {8, 9};
  make_random(other, 50, 1, 3);
  EXPECT_EQ(other[Column::kTokens][0], tokens[3]);
}

TEST_F(Injected, FlipsChangeOneBit) {
  train("clean", {});
  for (const char* where : {"weights", "gradients"}) {
    for (const int ranks : {1, 2}) {
      const std::string name = where + std::to_string(ranks), again = name + "again";
      const std::string entry = std::string("flip@step=3,where=") + where;
      train(name, with(quoted(entry), {"parallel.zero=1"}), ranks);
      train(again, with(quoted(entry), {"parallel.zero=1"}), ranks);
      expect_same_runs(name, again);
      EXPECT_NE(log(name).steps, log("clean").steps) << name;
      EXPECT_EQ(log(name).loss[0], log(again).loss[0]);
      EXPECT_EQ(injected(name).size(), 1);
    }
  }
}

TEST_F(Injected, AFlippedCheckpointIsFoundAndPassedOver) {
  train("run", with(quoted("flip@step=3,where=checkpoint"), {"training.steps=5"}));
  std::set<int64_t> damaged;
  for (const auto& listed : checkpoint::list_checkpoints(tiny_.folder() / "checkpoints"))
    if (!checkpoint::verify_checkpoint(listed.path).empty()) damaged.insert(listed.step);
  EXPECT_EQ(damaged, std::set<int64_t>{4}) << "the first save from step 3 on";
  ASSERT_EQ(injected("run").size(), 1);
  EXPECT_EQ(injected("run")[0].at("at_step"), 4);
}

TEST_F(Injected, ASlowRankSleeps) {
  train("run", with(quoted("slow@step=3,for_steps=2,seconds=0.5,rank=1")), 2);
  const auto times = values_of(tiny_.folder(), "time");
  ASSERT_EQ(times.size(), 6);
  for (const size_t step : {2, 3}) EXPECT_GE(times[step] - times[step - 1], 0.49) << step;
}

// The run ends as on a full disk; the same command resumes, and the disk is not full again.
TEST_F(Injected, AFullDiskEndsTheRunOnce) {
  train("clean", {});
  for (const int rank : {0, 1}) {
    const std::string name = "run" + std::to_string(rank);
    const auto sets =
        with(quoted("full_disk@step=3,for_steps=9,rank=" + std::to_string(rank)), {"parallel.zero=1"});
    const std::string error = error_of<WorldError>(name, sets, 2);
    EXPECT_NE(error.find("No space left"), std::string::npos) << rank << ": " << error;
    EXPECT_EQ(error_of<WorldError>(name, sets, 2), "") << rank;
    EXPECT_EQ(injected(name).size(), 1) << rank;
    EXPECT_EQ(log(name).steps.size(), 6) << rank;
  }
}

TEST_F(Injected, ASlowDiskTakesItsTime) {
  FaultyFileSystem files;
  InjectedDisk disk(files);
  const Path path = tiny_.path("file");
  const std::string text(1 << 22, 'x');
  disk.set_factor(5);
  {
    const auto file = disk.open_for_writing(path);
    for (int i = 0; i < 4; ++i) file->append(text);
    file->close();
  }
  EXPECT_EQ(std::filesystem::file_size(path), 4 * text.size());
  train("clean", {});
  train("run", with(quoted("slow_disk@step=2,for_steps=3,factor=3")));
  expect_same_runs("clean", "run");
}

// A message that is lost ends the run when the others have waited long enough.
TEST_F(Injected, ALostMessageEndsTheRunOnce) {
  train("clean", {"parallel.zero=1"}, 2);
  for (const char* phase : {"", ",phase=update"}) {
    const std::string name = std::string("run") + (*phase != 0 ? phase + 7 : "");
    const auto sets = with(quoted(std::string("drop@step=4,rank=1") + phase),
                           {"parallel.zero=1", "parallel.wait_limit=\"1s\""});
    const std::string error = error_of<WorldError>(name, sets, 2);
    EXPECT_NE(error.find("waited 1."), std::string::npos) << error;
    EXPECT_NE(error.find("for rank 1"), std::string::npos) << error;
    EXPECT_EQ(error_of<WorldError>(name, sets, 2), "");
    expect_same_runs("clean", name);
    EXPECT_EQ(injected(name).size(), 1);
  }
}

// A resumed run computes the same steps again, with the same faults, and reports none of them twice.
TEST_F(Injected, AReplayedStepHasItsFaultAgain) {
  for (const int ranks : {1, 2}) {
    const auto sets = with(
        "\"garbage@step=2,for_steps=1\", \"spike@step=3,factor=0.1\", \"flip@step=4\", "
        "\"flip@step=4,where=gradients,rank=0\", \"slow@step=4,seconds=0.01\"",
        {"parallel.zero=1"});
    const std::string whole = "whole" + std::to_string(ranks), name = "run" + std::to_string(ranks);
    train(whole, sets, ranks);
    train(name, sets, ranks);
    go_back(name, 2);
    train(name, sets, ranks);
    expect_same_runs(whole, name);
    EXPECT_EQ(injected(name).size(), 5);
    EXPECT_EQ(marks(name), 5);
  }
}

// What a rollback has undone does not come back.
TEST_F(Injected, AnUndoneFaultDoesNotActAgain) {
  train("clean", {});
  const auto sets = with("\"garbage@step=3,for_steps=2\", \"spike@step=4\"");
  train("run", sets);
  EXPECT_NE(log("run").steps, log("clean").steps);
  {
    FaultyFileSystem files;
    InjectedMarks marks(files, tiny_.folder());
    ASSERT_NE(marks.find("spike@step=4"), nullptr);
    EXPECT_TRUE(marks.find("spike@step=4")->acts(4));
    EXPECT_TRUE(marks.find("garbage@step=3,for_steps=2")->acts(5));
    marks.undo_after(3, true);
    const auto* const garbage = marks.find("garbage@step=3,for_steps=2");
    EXPECT_TRUE(garbage->acts(3));
    EXPECT_FALSE(garbage->acts(4)) << "its remaining steps are over";
    EXPECT_FALSE(marks.find("spike@step=4")->acts(4));
    marks.undo_after(4, true);
    EXPECT_FALSE(InjectedMarks(files, tiny_.folder()).find("spike@step=4")->acts(4));
    EXPECT_FALSE(InjectedMarks(files, tiny_.folder()).find("garbage@step=3,for_steps=2")->acts(4));
    marks.undo_after(2, true);
  }
  go_back("run", 2);
  train("run", sets);
  expect_same_runs("clean", "run");
  EXPECT_EQ(injected("run").size(), 2);
}

TEST_F(Injected, MarksThatAreNoMarksAreIgnored) {
  const Path folder = tiny_.folder() / "injected";
  std::filesystem::create_directories(folder);
  put_file(folder / "001.json", "{\"entry\": 3}");
  put_file(folder / "002.json", "torn");
  put_file(folder / "notes.txt", "");
  put_file(folder / "017.json", R"({"entry": "spike@step=2", "step": 2, "last_step": 2, "undone": null})");
  train("run", with("\"spike@step=2\", \"garbage@step=3\""));
  ASSERT_EQ(injected("run").size(), 1) << "the run has had the spike";
  EXPECT_TRUE(std::filesystem::exists(folder / "018.json"));
}

TEST_F(Injected, DrawnFaultsAreTheSameInEveryRun) {
  const std::string entry = "random@steps=2,seed=5,kinds=garbage:2+spike:1";
  std::vector<std::string> problems;
  const std::string entries[] = {entry};
  const auto plan = config::read_inject(entries, 0, 0, problems);
  std::vector<std::string> expected;
  for (int64_t step = 1; step <= 6; ++step)
    if (const auto fault = plan.random[0].draw(step, 1)) expected.push_back(fault->entry);
  ASSERT_FALSE(expected.empty());
  train("one", with(quoted(entry)));
  train("two", with(quoted(entry)));
  go_back("two", 2);
  train("two", with(quoted(entry)));
  std::vector<std::string> seen;
  for (const auto& event : injected("two")) seen.push_back(event.at("fault"));
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(log("one").steps, log("two").steps);
}

TEST_F(Injected, RefusesWhatTheRunDoesNotHave) {
  const std::string key = "debug.inject: ";
  EXPECT_NE(error_of<ConfigError>("a", with("\"nan@step=7\", \"nam@step=1\"")).find(key), std::string::npos);
  EXPECT_NE(error_of<ConfigError>("b", with(quoted("nan@step=1,rank=1"))).find("rank=1, expected one of"),
            std::string::npos);
  const std::string gather = error_of<ConfigError>("c", with(quoted("kill@step=1,phase=gather")));
  EXPECT_NE(gather.find("found phase=gather in a run whose ranks gather no weights"), std::string::npos)
      << gather;
}

// The loop asks after each snapshot; here only the injector is asked.
TEST_F(Injected, ASnapshotIsDamagedOnce) {
  FaultyFileSystem quick;
  const auto made = config::make_plan(tiny_.config(with("\"flip@step=3,where=snapshot\", \"spike@step=4\"")),
                                      {.files = quick});
  const config::RunPlan& plan = *made;
  const auto set = plan.set(0);
  const program::Ranks ranks(set->options);
  program::Executor executor(set, config::make_device(plan.config), ranks);
  const RunInputs inputs{plan.config, plan.model, plan.tokens(), plan.data, ranks};
  InjectedDisk disk(quick);
  struct Events final : Reporter {
    std::vector<int64_t> steps;
    void event(const std::string& name, int64_t step, const observe::MetricFields& fields) override {
      EXPECT_EQ(name, "injected");
      EXPECT_EQ(fields.size(), 2) << "a fault without a phase";
      steps.push_back(step);
    }
  } events;
  const Path folder = tiny_.path("snapshots");
  std::filesystem::create_directories(folder);
  {
    Injector injector(inputs, executor, disk, folder, events);
    EXPECT_FALSE(injector.flip_snapshot(2));
    const auto place = injector.flip_snapshot(5);
    ASSERT_TRUE(place) << "the first snapshot from step 3 on";
    EXPECT_TRUE(place->bit >= 0 && place->bit < 8);
    EXPECT_FALSE(injector.flip_snapshot(6));
    EXPECT_EQ(events.steps, std::vector<int64_t>{5});
    injector.before_step(4);
    injector.undo_after(3);
  }
  Injector resumed(inputs, executor, disk, folder, events);
  EXPECT_FALSE(resumed.flip_snapshot(7));
  resumed.before_step(4);
  EXPECT_EQ(events.steps, (std::vector<int64_t>{5, 4}));
}

}  // namespace
}  // namespace strata::training
