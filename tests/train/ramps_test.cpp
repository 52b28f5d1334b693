// Ramps of batch and length: the same samples in the same order, and the curves of runs whose sizes are changed
// by hand.
#include <gtest/gtest.h>

#include <filesystem>

#include "config/ramp.h"
#include "fixtures/tiny_run.h"
#include "train/noise_ramp.h"

namespace strata::training {
namespace {

// A step of the tiny run has 8 sequences of 16 tokens, in micro-batches of 4.
const Sets kOrder{"data.shuffle=false", "schedule.steps=6"};
const Sets kBatch{"training.batch_ramp=[[0, 4], [128, 8]]"};       // two steps of 64 tokens, then 128
const Sets kLength{"training.length_warmup=[[0, 8], [200, 16]]"};  // of 128 tokens: two steps
const Sets kBoth = kBatch + Sets{"training.length_warmup=[[0, 4], [64, 8], [200, 16]]"};
const Sets kExperts{"model.family=mixtral", "model.override.num_local_experts=4",
                    "model.override.num_experts_per_tok=2", "moe.jitter=0.01"};

void expect_same_curve(const TinyRun& tiny, const std::string& a, const std::string& b) {
  for (const char* key : {"loss", "grad_norm", "tokens", "first_sample", "lr"})
    EXPECT_EQ(values_of(tiny.folder(a), key), values_of(tiny.folder(b), key)) << key;
}

TrainResult accept(const TinyRun& tiny, const Sets& sets, const std::string& name, int64_t steps = -1) {
  return tiny.train_with({.config = tiny.config(sets, name), .accept_changes = true}, steps);
}

TEST(BatchRamp, HasTheCurveOfBatchesSetByHand) {
  for (const Sets& model : {Sets{}, kExperts}) {
    const TinyRun tiny;
    const Sets sets = model + Sets{"schedule.steps=6"};
    tiny.train(sets + kBatch, "ramp");
    EXPECT_EQ(values_of(tiny.folder("ramp"), "first_sample"), (std::vector<double>{0, 4, 8, 16, 24, 32}));
    EXPECT_EQ(values_of(tiny.folder("ramp"), "tokens"), (std::vector<double>{64, 128, 256, 384, 512, 640}));
    tiny.train(sets + Sets{"training.global_batch_size=4"}, "hand", 2);
    accept(tiny, sets, "hand");
    expect_same_curve(tiny, "ramp", "hand");
    expect_same_bits(bits_of(tiny.folder("ramp"), 6), bits_of(tiny.folder("hand"), 6));
  }
}

// A window cut in two trains like two windows of half the length.
TEST(LengthWarmup, HasTheCurveOfShorterWindows) {
  for (const Sets& model : {Sets{}, kExperts}) {
    const TinyRun tiny;
    const Sets sets = model + kOrder;
    tiny.train(sets + kLength, "ramp");
    tiny.train(sets + Sets{"training.sequence_length=8", "training.global_batch_size=16",
                           "training.micro_batch_size=8"},
               "hand", 2);
    for (const char* key : {"loss", "grad_norm", "tokens"}) {
      auto found = values_of(tiny.folder("ramp"), key);
      found.resize(2);
      EXPECT_EQ(found, values_of(tiny.folder("hand"), key)) << key;
    }
    EXPECT_EQ(bits_of(tiny.folder("ramp"), 2).model, bits_of(tiny.folder("hand"), 2).model);
    EXPECT_EQ(values_of(tiny.folder("ramp"), "first_sample"), (std::vector<double>{0, 8, 16, 24, 32, 40}));
    // From full length on it continues like a run without the ramp.
    tiny.train(sets + kLength, "full", 2);
    accept(tiny, sets, "full");
    expect_same_curve(tiny, "ramp", "full");
    expect_same_bits(bits_of(tiny.folder("ramp"), 6), bits_of(tiny.folder("full"), 6));
    tiny.train(sets, "none", 1);
    EXPECT_NE(values_of(tiny.folder("none"), "loss").at(0), values_of(tiny.folder("ramp"), "loss").at(0));
  }
}

TEST(Ramps, ResumeInTheMiddle) {
  const TinyRun tiny;
  tiny.train(kBoth, "whole");
  for (const int64_t stop : {1, 2, 3}) {
    const std::string name = fmt::format("stopped{}", stop);
    tiny.train(kBoth, name, stop);
    tiny.train(kBoth, name);
    expect_same_curve(tiny, "whole", name);
    expect_same_bits(bits_of(tiny.folder("whole"), 6), bits_of(tiny.folder(name), 6), name);
  }
}

TEST(Ramps, HaveTheSameCurveOnSeveralRanks) {
  const TinyRun tiny;
  tiny.train(kBoth, "one");
  const auto wanted = values_of(tiny.folder("one"), "loss");
  struct Case {
    const char* name;
    Sets sets;
  };
  const Case cases[] = {
      {"data", {}},
      {"pipeline", {"parallel.pipeline=2", "parallel.shard=1"}},
      {"zero-bubble",
       {"parallel.pipeline=2", "parallel.shard=1", "parallel.schedule=zb_h1", "training.micro_batch_size=1"}},
      {"tensor", {"parallel.tensor=2", "parallel.shard=1"}}};
  for (const Case& one : cases) {
    Sets sets = kBoth + Sets{"training.micro_batch_size=2"} + one.sets;
    tiny.train_ranks(tiny.config(sets, one.name), 2);
    const auto found = values_of(tiny.folder(one.name), "loss");
    ASSERT_EQ(found.size(), wanted.size()) << one.name;
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-5) << one.name << i;
  }
}

// With a context axis, ranks share each of the shorter sequences.
TEST(Ramps, WorkWithSharedSequences) {
  const TinyRun tiny;
  const Sets sets = kLength + Sets{"training.steps=3"};
  tiny.train(sets, "one");
  tiny.train_ranks(tiny.config(sets + Sets{"parallel.context=2", "parallel.shard=1"}, "two"), 2);
  const auto wanted = values_of(tiny.folder("one"), "loss"), found = values_of(tiny.folder("two"), "loss");
  ASSERT_EQ(found.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], wanted[i], 2e-5) << i;
}

TEST(Ramps, CountTheStepsOfTokensAndData) {
  const TinyRun tiny;
  // 2 steps of 64 tokens, then 128 each.
  const auto steps = [&](const Sets& sets) { return config::total_steps(tiny.config(kBatch + sets)); };
  EXPECT_EQ(steps({"training.tokens=128"}), 2);
  EXPECT_EQ(steps({"training.tokens=129"}), 3);
  EXPECT_EQ(steps({"training.tokens=640"}), 6);
  // An epoch has 374 samples: 2 · 4 and 46 · 8 with a last batch of 6.
  const TrainResult all =
      tiny.train(kBatch + Sets{"training.steps=1000", "data.epochs=1", "checkpoint.interval=never"});
  EXPECT_EQ(all.step, 2 + 46);
  EXPECT_EQ(values_of(tiny.folder(), "tokens").back(), 374 * 16);

  const config::Ramps ramps(tiny.config(kBoth));
  EXPECT_EQ(ramps.at(0), (config::StepSize{4, 4}));
  EXPECT_EQ(ramps.at(127), (config::StepSize{4, 8}));
  EXPECT_EQ(ramps.at(128), (config::StepSize{8, 8}));
  EXPECT_EQ(ramps.at(1000), (config::StepSize{8, 16}));
  const auto parts = ramps.periods(0, {.steps = 5}, 0.5);
  ASSERT_EQ(parts.size(), 3u);  // 32 tokens a step, then 64
  EXPECT_EQ(parts[0].steps, 2);
  EXPECT_EQ(parts[1].steps, 2);
  EXPECT_EQ(parts[2].size, (config::StepSize{8, 8}));
  EXPECT_EQ(parts[2].samples, 16);
}

// The batch is chosen by the caller; each has a program.
TEST(NoiseScale, DoublesTheBatch) {
  const TinyRun tiny;
  const config::RunConfig config = tiny.config(
      {"training.batch_ramp=noise_scale", "training.global_batch_size=32", "training.micro_batch_size=2"});
  const auto sizes = config::batch_sizes(config);
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 8, 16, 32}));
  EXPECT_EQ(config::Ramps(config).at(0).sequences, 4);
  EXPECT_EQ(config::Ramps(config, 16).at(0).sequences, 16);
  EXPECT_EQ(config::step_sizes(config).size(), 4u);

  NoiseRamp ramp(sizes);
  for (int64_t step = 0; step < NoiseRamp::kSteps - 1; ++step) EXPECT_FALSE(ramp.after_step(100.0));
  EXPECT_FALSE(ramp.after_step(std::nullopt)) << "not measured";
  NoiseRamp again(sizes, ramp.state());
  EXPECT_EQ(again.after_step(100.0), 8);
  EXPECT_EQ(ramp.after_step(7.9), std::nullopt);
  EXPECT_EQ(ramp.batch(), 4);
  for (int64_t step = 0; step < 3 * NoiseRamp::kSteps; ++step) again.after_step(1e9);
  EXPECT_EQ(again.batch(), 32);
  EXPECT_FALSE(again.after_step(1e9)) << "never beyond the largest";
  EXPECT_EQ(NoiseRamp({8, 16, 32}, ramp.state()).batch(), 8) << "fewer sizes on another layout";
  // Until a caller changes it, a run has the smallest batch.
  tiny.train({"training.batch_ramp=noise_scale", "training.micro_batch_size=2", "training.steps=2"});
  EXPECT_EQ(values_of(tiny.folder(), "tokens"), (std::vector<double>{64, 128}));
}

}  // namespace
}  // namespace strata::training
