// Bits that a machine changes: found by comparing replicas, by computing micro-batches twice and by digests of snapshots,
// and undone without a trace in the result.
#include <gtest/gtest.h>

#include "fixtures/tiny_run.h"
#include "train/recompute_check.h"
#include "train/replicas.h"

namespace strata::training {
namespace {

using Event = nlohmann::json;

class CorruptedRun : public testing::Test {
 protected:
  // On this many ranks, as threads.
  FinalBits train(const std::string& name, int ranks, const Sets& sets) {
    FaultyFileSystem quick;
    RunOptions options{.config = tiny_.config(Sets{"training.steps=10", "recovery.snapshot=\"3 steps\"",
                                                   "checkpoint.interval=\"100 steps\""} +
                                                  sets,
                                              name),
                       .files = &quick};
    options.observer.log = [](LogLevel, std::string_view) {};
    train_on_threads(options, ranks, [] { return false; });
    return bits_of(tiny_.folder(name), 10);
  }
  std::vector<Event> events(const std::string& run, const std::string& name) const {
    std::vector<Event> found;
    for (const auto& event : metrics_of(tiny_.folder(run)).events)
      if (event.at("event") == name) found.push_back(event);
    return found;
  }
  static void expect_same(const FinalBits& a, const FinalBits& b) {
    EXPECT_TRUE(a.model == b.model);
    EXPECT_TRUE(a.optimizer == b.optimizer);
  }

  TinyRun tiny_;
};

Sets inject(const std::string& errors) {
  return {"debug.inject=[" + errors + "]"};
}

struct Layout {
  const char* name;
  int ranks;
  Sets sets;
};
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.name;
}
std::string name_of_layout(const testing::TestParamInfo<Layout>& one) {
  return one.param.name;
}

class FlippedWeight : public CorruptedRun, public testing::WithParamInterface<Layout> {};

TEST_P(FlippedWeight, IsFoundAtOnceAndUndone) {
  const Layout& layout = GetParam();
  const FinalBits clean = train("clean", layout.ranks, layout.sets);
  EXPECT_TRUE(events("clean", "corruption").empty());
  const FinalBits mended = train("flipped", layout.ranks, layout.sets + inject("\"flip@step=5,rank=1\""));
  const auto found = events("flipped", "corruption");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("where"), "weights");
  EXPECT_EQ(found[0].at("found_by"), "compare_replicas");
  EXPECT_EQ(found[0].at("at_step"), 5);
  // A third replica shows which one is wrong.
  const bool has_third = layout.sets.front() != "parallel.replicate=2";
  EXPECT_EQ(found[0].value("rank", -1), has_third ? 1 : -1);
  const auto actions = events("flipped", "intervention");
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].at("rule"), "corruption");
  EXPECT_EQ(actions[0].at("to_step"), 3);
  expect_same(mended, clean);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, FlippedWeight,
    testing::Values(Layout{"two", 2, {"parallel.replicate=2"}}, Layout{"three", 3, {"parallel.replicate=3"}},
                    Layout{"zero_1", 6, {"parallel.replicate=3", "parallel.shard=2", "parallel.zero=1"}},
                    Layout{"tensor", 6, {"parallel.replicate=3", "parallel.tensor=2"}}),
    name_of_layout);

TEST_F(CorruptedRun, ComparesInTheStepsOfItsInterval) {
  const Sets sets{"parallel.replicate=3", "recovery.compare_replicas=\"4 steps\"",
                  "recovery.snapshot=\"7 steps\""};
  train("run", 3, sets + inject("\"flip@step=5,rank=2\""));
  const auto found = events("run", "corruption");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("at_step"), 7) << "a snapshot is taken there";
  train(
      "never", 3,
      Sets{"parallel.replicate=3", "recovery.compare_replicas=\"never\""} + inject("\"flip@step=5,rank=2\""));
  EXPECT_TRUE(events("never", "corruption").empty());
}

TEST_F(CorruptedRun, EndsWithTheRankThatNeverAgrees) {
  const Sets flips = inject("\"flip@step=5,rank=1\", \"flip@step=6,rank=1\", \"flip@step=7,rank=1\"");
  const auto error_of = [&](const std::string& name, int ranks) -> std::string {
    try {
      train(name, ranks, flips + Sets{"parallel.shard=1", "parallel.replicate=-1"});
    } catch (const DivergedError& error) {
      return error.what();
    }
    return "";
  };
  const std::string named = error_of("three", 3), unnamed = error_of("two", 2);
  EXPECT_NE(named.find("the machine of rank 1 stores or computes wrong values"), std::string::npos) << named;
  EXPECT_NE(unnamed.find("ranks 0 and 1 differ"), std::string::npos) << unnamed;
  EXPECT_NE(unnamed.find("a third replica"), std::string::npos) << unnamed;
}

TEST_F(CorruptedRun, OnlyReportsWithoutRules) {
  train("run", 3, Sets{"parallel.replicate=3", "recovery.rules=\"none\""} + inject("\"flip@step=9,rank=1\""));
  EXPECT_EQ(events("run", "corruption").size(), 2u) << "in steps 9 and 10";
  EXPECT_TRUE(events("run", "intervention").empty());
}

// A gradient that is wrong before it is summed is wrong in the same way on all ranks.
class FlippedGradient : public CorruptedRun, public testing::WithParamInterface<Layout> {};

TEST_P(FlippedGradient, IsFoundByItsNeighbourAndMended) {
  const Layout& layout = GetParam();
  const FinalBits clean = train("clean", layout.ranks, layout.sets);
  const Sets checks = layout.sets + Sets{"recovery.recompute_check=\"2 steps\""};
  expect_same(train("checked", layout.ranks, checks), clean);
  EXPECT_TRUE(events("checked", "corruption").empty());
  const FinalBits mended =
      train("flipped", layout.ranks, checks + inject("\"flip@step=6,rank=1,where=gradients\""));
  const auto found = events("flipped", "corruption");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("where"), "computation");
  EXPECT_EQ(found[0].at("found_by"), "recompute_check");
  EXPECT_EQ(found[0].at("at_step"), 6);
  EXPECT_EQ(found[0].value("rank", -1), 1);
  EXPECT_TRUE(events("flipped", "intervention").empty()) << "the step was computed again";
  expect_same(mended, clean);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, FlippedGradient,
    testing::Values(
        Layout{"two", 2, {"parallel.replicate=2", "training.micro_batch_size=2"}},
        Layout{"three", 3, {"parallel.replicate=3"}},
        Layout{"zero_1", 4, {"parallel.replicate=2", "parallel.shard=2", "parallel.zero=1"}},
        Layout{"zero_2", 3, {"parallel.shard=3", "parallel.zero=2", "training.micro_batch_size=1"}},
        Layout{"zero_3", 3, {"parallel.shard=3", "parallel.zero=3", "training.micro_batch_size=1"}},
        Layout{"context", 4, {"parallel.replicate=2", "parallel.context=2"}},
        Layout{"length", 3, {"parallel.replicate=3", "training.length_warmup=[[0, 8], [400, 16]]"}}),
    name_of_layout);

TEST_F(CorruptedRun, ChecksNothingWhereResultsAreNotComparable) {
  set_log_level(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  FaultyFileSystem quick;
  train_on_threads({.config = tiny_.config({"training.steps=2", "recovery.recompute_check=\"1 steps\"",
                                            "parallel.pipeline=2", "training.micro_batch_size=2"},
                                           "stages"),
                    .files = &quick},
                   2, [] { return false; });
  const std::string said = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kError);
  EXPECT_NE(said.find("[recovery.recompute_check]"), std::string::npos) << said;
  EXPECT_NE(said.find("a stage of a pipeline has no whole micro-batch"), std::string::npos) << said;
}

TEST_F(CorruptedRun, GoesToAnOlderSnapshotThanADamagedOne) {
  const Sets sets{"recovery.detection_delay=6", "parallel.replicate=2"};
  train(
      "run", 2,
      sets +
          inject("\"flip@step=6,rank=1,where=snapshot\", \"nan@step=7,phase=bwd\", \"nan@step=8,phase=bwd\", "
                 "\"nan@step=9,phase=bwd\""));
  const auto found = events("run", "corruption");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("where"), "snapshot");
  EXPECT_EQ(found[0].at("found_by"), "digest");
  EXPECT_EQ(found[0].at("rank"), 1);
  EXPECT_FALSE(found[0].at("tensor").get<std::string>().empty());
  const auto actions = events("run", "intervention");
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.back().at("to_step"), 3);
}

TEST(OddOne, IsTheOneAgainstAMajority) {
  EXPECT_EQ(odd_one({0, 2, 4}, {7, 7, 9}), 4);
  EXPECT_EQ(odd_one({0, 2, 4}, {9, 7, 7}), 0);
  EXPECT_EQ(odd_one({0, 1}, {7, 9}), std::nullopt);
  EXPECT_EQ(odd_one({0, 1, 2, 3}, {7, 7, 9, 9}), std::nullopt);
  EXPECT_EQ(odd_one({0, 1, 2}, {7, 8, 9}), std::nullopt);
}

// Rank 1 computes something wrong: its own part, the one that it checks, or everything.
TEST(WrongRank, IsShownByAThirdResult) {
  const std::vector<int> three{0, 1, 2}, two{0, 1};
  bool differs = false;
  EXPECT_EQ(wrong_rank(three, {{10, 11, 12}, {11, 12, 10}, {12, 10, 11}}, differs), std::nullopt);
  EXPECT_FALSE(differs);
  EXPECT_EQ(wrong_rank(three, {{10, 99, 12}, {11, 12, 10}, {12, 10, 11}}, differs), 1);
  EXPECT_TRUE(differs);
  EXPECT_EQ(wrong_rank(three, {{10, 11, 12}, {11, 99, 10}, {12, 10, 11}}, differs), 1);
  EXPECT_EQ(wrong_rank(three, {{10, 97, 12}, {11, 98, 10}, {12, 99, 11}}, differs), 1);
  // A passing error of the owner's, one of its neighbour's, and a lasting one.
  EXPECT_EQ(wrong_rank(two, {{10, 99}, {11, 10}, {10, 11}}, differs), 1);
  EXPECT_EQ(wrong_rank(two, {{10, 11}, {11, 99}, {10, 11}}, differs), std::nullopt);
  EXPECT_EQ(wrong_rank(two, {{10, 99}, {11, 98}, {10, 99}}, differs), std::nullopt);
}

}  // namespace
}  // namespace strata::training
