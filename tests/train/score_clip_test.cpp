// optimizer.muon.qk_clip, from the configuration to metrics and checkpoints.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

// A rate with which scores grow within a few steps.
Sets growing(const char* limit, const Sets& more = {}) {
  return Sets{"optimizer.name=\"muon\"",
              "optimizer.lr=0.5",
              "optimizer.weight_decay=0",
              "schedule.warmup_steps=0",
              "training.steps=12",
              "checkpoint.interval=\"6 steps\"",
              std::string("optimizer.muon.qk_clip=") + limit} +
         more;
}

double greatest_of_last(const std::vector<double>& scores) {
  return *std::max_element(scores.end() - 4, scores.end());
}

TEST(ScoreClipRun, BoundsScoresThatGrowWithoutIt) {
  const TinyRun tiny;
  tiny.train(growing("1e9"), "free");
  tiny.train(growing("10"), "limited");
  const std::vector<double> grown = values_of(tiny.folder("free"), "max_attention_score"),
                            held = values_of(tiny.folder("limited"), "max_attention_score");
  ASSERT_EQ(grown.size(), 12U);
  ASSERT_EQ(held.size(), 12U);
  EXPECT_EQ(held.front(), grown.front()) << "the first step's scores are those of the initial weights";
  EXPECT_GT(greatest_of_last(grown), 50);
  // An update after the limit lets them grow above it, by a step's growth.
  EXPECT_LT(greatest_of_last(held), 40);
  for (const double heads : values_of(tiny.folder("free"), "clipped_heads")) EXPECT_EQ(heads, 0);
  const std::vector<double> clipped = values_of(tiny.folder("limited"), "clipped_heads");
  for (size_t step = 0; step < held.size(); ++step) {
    EXPECT_EQ(clipped[step] > 0, held[step] > 10) << step;
    EXPECT_LE(clipped[step], 8) << "two layers of four heads";
  }
}

TEST(ScoreClipRun, IsSilentWithoutTheKey) {
  const TinyRun tiny;
  tiny.train({"optimizer.name=\"muon\"", "training.steps=2"});
  EXPECT_TRUE(values_of(tiny.folder(), "max_attention_score").empty());
  EXPECT_TRUE(values_of(tiny.folder(), "clipped_heads").empty());
}

TEST(ScoreClipRun, ResumesWithTheSameBits) {
  const TinyRun tiny;
  tiny.train(growing("2"), "whole");
  EXPECT_EQ(tiny.train(growing("2"), "cut", 7).end, RunEnd::kInterrupted);
  tiny.train(growing("2"), "cut");
  expect_same_bits(bits_of(tiny.folder("whole"), 12), bits_of(tiny.folder("cut"), 12));
  EXPECT_EQ(values_of(tiny.folder("whole"), "max_attention_score"),
            values_of(tiny.folder("cut"), "max_attention_score"));
}

// The layouts of a job agree on scores, and on the heads that they clip.
TEST(ScoreClipRun, ReportsTheSameOnRanks) {
  const TinyRun tiny;
  const Sets slow{"optimizer.lr=0.02", "training.steps=4", "optimizer.muon.qk_clip=0.02"};
  tiny.train(growing("1", slow), "one");
  const std::vector<double> scores = values_of(tiny.folder("one"), "max_attention_score"),
                            clipped = values_of(tiny.folder("one"), "clipped_heads");
  ASSERT_EQ(scores.size(), 4U);
  EXPECT_GT(*std::max_element(clipped.begin(), clipped.end()), 0);
  const auto expect_like_one = [&](const std::string& name, const Sets& layout) {
    tiny.train_ranks(tiny.config(growing("1", slow + layout), name), 4);
    const std::vector<double> found = values_of(tiny.folder(name), "max_attention_score");
    ASSERT_EQ(found.size(), scores.size()) << name;
    for (size_t i = 0; i < scores.size(); ++i)
      EXPECT_NEAR(found[i], scores[i], 1e-3 * scores[i]) << name << i;
    EXPECT_EQ(values_of(tiny.folder(name), "clipped_heads"), clipped) << name;
  };
  expect_like_one("shards", {"parallel.shard=2", "parallel.tensor=2", "parallel.zero=3"});
  expect_like_one("stages", {"parallel.pipeline=2", "parallel.tensor=2"});
  expect_like_one("context",
                  {"parallel.context=2", "parallel.replicate=2", "parallel.context_kind=\"ring\""});
}

TEST(ScoreClipRun, WorksInOtherPrecisions) {
  for (const char* compute : {"bf16", "fp16", "fp8"}) {
    const TinyRun tiny;
    const Sets sets{std::string("precision.compute=\"") + compute + "\"", "precision.keep=[\"head\"]"};
    EXPECT_EQ(tiny.train(growing("10", sets)).end, RunEnd::kFinished) << compute;
    const std::vector<double> scores = values_of(tiny.folder(), "max_attention_score");
    ASSERT_EQ(scores.size(), 12U) << compute;
    EXPECT_LT(greatest_of_last(scores), 40) << compute;
  }
}

TEST(ScoreClipRun, RefusesModelsWhoseScoresItCannotLimit) {
  const TinyRun tiny;
  const auto refusal = [&](const Sets& sets) -> std::string {
    try {
      tiny.train(Sets{"optimizer.name=\"muon\"", "optimizer.muon.qk_clip=100"} + sets, "refused");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  };
  const std::string normed = refusal({"model.family=\"qwen3\""});
  EXPECT_NE(normed.find("optimizer.muon.qk_clip"), normed.npos) << normed;
  EXPECT_NE(normed.find("whose queries and keys are normalized"), normed.npos) << normed;
}

}  // namespace
}  // namespace strata::training
