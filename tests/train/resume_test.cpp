// A run that was stopped and resumed equals an uninterrupted one bit for bit.
#include "base/error.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

// Compares an uninterrupted run with one stopped after `cut` steps.
void expect_resumes(const std::vector<std::string>& sets, int64_t cut, int64_t steps = 6) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train(sets, "whole").end, RunEnd::kFinished);
  const TrainResult first = tiny.train(sets, "cut", cut);
  EXPECT_EQ(first.end, RunEnd::kInterrupted);
  EXPECT_EQ(first.step, cut);
  const TrainResult second = tiny.train(sets, "cut");
  EXPECT_EQ(second.end, RunEnd::kFinished);
  EXPECT_EQ(second.step, steps);
  expect_same_bits(bits_of(tiny.folder("whole"), steps), bits_of(tiny.folder("cut"), steps));
  const MetricsLog whole = metrics_of(tiny.folder("whole"));
  const MetricsLog resumed = metrics_of(tiny.folder("cut"));
  EXPECT_EQ(whole.steps, resumed.steps);
  EXPECT_EQ(whole.steps.size(), static_cast<size_t>(steps));
  EXPECT_NE(find_event(resumed, "interrupt"), nullptr);
  EXPECT_NE(find_event(resumed, "resume"), nullptr);
  EXPECT_EQ(read_file(tiny.folder("whole") / "final/model.safetensors"),
            read_file(tiny.folder("cut") / "final/model.safetensors"));
}

TEST(Resume, BitForBitWithGradientAccumulation) {
  expect_resumes({"training.micro_batch_size=2"}, 3);
}
TEST(Resume, BitForBitOfAStream) {
  expect_resumes({"data.pack=\"stream\""}, 1);
}
TEST(Resume, BitForBitOfBestFit) {
  expect_resumes({"data.pack=\"best_fit\""}, 5);
}
TEST(Resume, BitForBitWithoutShuffle) {
  expect_resumes({"data.shuffle=false"}, 2);
}
TEST(Resume, BitForBitInBf16) {
  expect_resumes({"precision.compute=\"bf16\""}, 3);
}
TEST(Resume, BitForBitOfGpt2) {
  const TinyRun tiny;
  for (const char* name : {"whole", "cut"}) {
    std::string toml = tiny.toml(name);
    toml.replace(toml.find("llama3"), 6, "gpt2");
    toml.replace(toml.find("num_key_value_heads = 2"), 23, "");
    const config::RunConfig config = config::parse_run_config(toml, "RUN.toml");
    if (std::string(name) == "cut") tiny.train_with(RunOptions{.config = config}, 3);
    EXPECT_EQ(tiny.train_with(RunOptions{.config = config}).end, RunEnd::kFinished);
  }
  expect_same_bits(bits_of(tiny.folder("whole"), 6), bits_of(tiny.folder("cut"), 6));
}

// Every optimizer with its kinds of states, including families whose files store matrices transposed or with
// rows interleaved by head.
class ResumeOptimizer : public testing::TestWithParam<const char*> {};

TEST_P(ResumeOptimizer, BitForBit) {
  const std::string name = std::string("optimizer.name=\"") + GetParam() + "\"";
  expect_resumes({name, "optimizer.adamw8bit.min_elements=256"}, 3);
}

TEST_P(ResumeOptimizer, BitForBitOfOtherFamilies) {
  for (const std::string family : {"gpt2", "neox"}) {
    const TinyRun tiny;
    for (const char* name : {"whole", "cut"}) {
      std::string toml = tiny.toml(name);
      toml.replace(toml.find("llama3"), 6, family);
      toml.replace(toml.find("num_key_value_heads = 2"), 23, "");
      const std::vector<std::string> sets{std::string("optimizer.name=\"") + GetParam() + "\"",
                                          "optimizer.adamw8bit.min_elements=256"};
      const config::RunConfig config = config::parse_run_config(toml, "RUN.toml", sets);
      if (std::string(name) == "cut") tiny.train_with(RunOptions{.config = config}, 3);
      EXPECT_EQ(tiny.train_with(RunOptions{.config = config}).end, RunEnd::kFinished);
    }
    expect_same_bits(bits_of(tiny.folder("whole"), 6), bits_of(tiny.folder("cut"), 6), family);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResumeOptimizer,
                         testing::Values("adamw", "muon", "lion", "adafactor", "adamw8bit", "adopt"),
                         [](const auto& one) { return std::string(one.param); });

// 374 windows: two epochs end in step 19, which has a smaller batch.
TEST(Resume, EpochsEndTheRun) {
  const TinyRun tiny;
  const std::vector<std::string> sets{"data.epochs=2", "training.steps=1000", "training.global_batch_size=40",
                                      "training.micro_batch_size=20", "schedule.steps=100"};
  EXPECT_EQ(tiny.train(sets, "whole").end, RunEnd::kFinished);
  tiny.train(sets, "cut", 18);
  const TrainResult end = tiny.train(sets, "cut");
  EXPECT_EQ(end.end, RunEnd::kFinished);
  EXPECT_EQ(end.step, 19);
  expect_same_bits(bits_of(tiny.folder("whole"), 19), bits_of(tiny.folder("cut"), 19));
}

TEST(Resume, TheTimeLimitSaves) {
  const TinyRun tiny;
  tiny.train({}, "whole");
  for (int64_t done = 1; done < 6; ++done) {
    const TrainResult part = tiny.train({"run.max_time=\"0.0001s\""}, "parts");
    EXPECT_EQ(part.end, RunEnd::kTimeLimit);
    EXPECT_EQ(part.step, done);
  }
  EXPECT_EQ(tiny.train({"run.max_time=\"0.0001s\""}, "parts").end, RunEnd::kFinished);
  expect_same_bits(bits_of(tiny.folder("whole"), 6), bits_of(tiny.folder("parts"), 6));
  EXPECT_EQ(metrics_of(tiny.folder("whole")).steps, metrics_of(tiny.folder("parts")).steps);
}

TEST(Resume, TheSameRunTwiceHasTheSameBits) {
  const TinyRun tiny;
  tiny.train({"device.threads=2"}, "one");
  tiny.train({"device.threads=2"}, "two");
  expect_same_bits(bits_of(tiny.folder("one"), 6), bits_of(tiny.folder("two"), 6));
  tiny.train({"run.seed=5"}, "other");
  EXPECT_NE(bits_of(tiny.folder("one"), 6).model, bits_of(tiny.folder("other"), 6).model);
}

TEST(Resume, RecomputeDoesNotChangeBits) {
  const TinyRun tiny;
  for (const char* mode : {"none", "selective", "full"})
    tiny.train({std::string("memory.recompute=\"") + mode + "\""}, mode);
  expect_same_bits(bits_of(tiny.folder("none"), 6), bits_of(tiny.folder("selective"), 6), "selective");
  expect_same_bits(bits_of(tiny.folder("none"), 6), bits_of(tiny.folder("full"), 6), "full");
}

// Only the order of sums over a batch differs: 2e-5 of the loss over six steps.
TEST(Resume, MicroBatchSizesDoNotChangeTheLoss) {
  const TinyRun tiny;
  tiny.train({"training.micro_batch_size=8"}, "m8");
  const MetricsLog whole = metrics_of(tiny.folder("m8"));
  for (const char* size : {"1", "2", "4"}) {
    const std::string name = std::string("m") + size;
    tiny.train({std::string("training.micro_batch_size=") + size}, name);
    const MetricsLog parts = metrics_of(tiny.folder(name));
    ASSERT_EQ(parts.loss.size(), whole.loss.size());
    for (size_t i = 0; i < whole.loss.size(); ++i)
      EXPECT_NEAR(parts.loss[i], whole.loss[i], 2e-5 * whole.loss[i]);
  }
}

}  // namespace
}  // namespace strata::training
