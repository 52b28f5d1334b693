#include <gtest/gtest.h>

#include <stdexcept>

#include "base/json.h"
#include "library/library_fixture.h"

namespace strata {
namespace {

using Train = Library;

TEST_F(Train, APlanPricesTheRun) {
  const Plan made = plan(config("run"));
  EXPECT_GT(made.parameters(), 20000);
  EXPECT_TRUE(made.memory().fits);
  EXPECT_GT(made.memory().fixed, 4 * made.parameters());
  EXPECT_LT(made.memory().fixed, made.memory().bytes);
  EXPECT_EQ(made.time().steps, 6);
  EXPECT_EQ(made.time().tokens_per_step, 4 * 32);
  EXPECT_GT(made.time().step_seconds, 0);
  EXPECT_DOUBLE_EQ(made.time().run_seconds, 6 * made.time().step_seconds);
  EXPECT_NE(made.config().get("training.micro_batch_size"), "\"auto\"");
  const auto json = parse_json<nlohmann::json>(made.json());
  EXPECT_EQ(json.at("memory_budget"), made.memory().budget);
  EXPECT_EQ(json.at("expected").at("step_seconds"), made.time().step_seconds);
  EXPECT_TRUE(has(made.text(), "of the GEMM peak"));
  EXPECT_FALSE(std::filesystem::exists(folder("run")));  // nothing is written
}

TEST_F(Train, APlanThatDoesNotFitNamesWhatWould) {
  const Plan made = plan(config("run", {"memory.budget=\"600 kB\"", "training.micro_batch_size=4"}));
  EXPECT_FALSE(made.memory().fits);
  EXPECT_TRUE(has(made.text(), "--set memory.budget=")) << made.text();
}

TEST_F(Train, CallsBackAndPrintsNothing) {
  testing::internal::CaptureStderr();
  std::vector<std::int64_t> steps;
  std::vector<std::pair<std::int64_t, std::string>> evaluations;
  int samples = 0, lines = 0;
  TrainCallbacks callbacks;
  callbacks.step = [&](const StepReport& report) {
    steps.push_back(report.step);
    EXPECT_TRUE(report.loss);
    EXPECT_GT(report.grad_norm, 0);
    EXPECT_EQ(report.tokens, report.step * 128);
    if (!report.evaluations.empty()) evaluations.emplace_back(report.step, report.evaluations.front().first);
  };
  callbacks.sample = [&](std::int64_t, const std::string& prompt, const std::string&) {
    EXPECT_EQ(prompt, "The number");
    ++samples;
  };
  callbacks.log = [&](LogLevel, std::string_view) { ++lines; };
  const TrainResult result = train(plan(config("run")), callbacks);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_EQ(result.step, 6);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(evaluations, (std::vector<std::pair<std::int64_t, std::string>>{{3, "eval/valid/loss"},
                                                                            {6, "eval/valid/loss"}}));
  EXPECT_EQ(samples, 2);
  EXPECT_GT(lines, 3);
}

TEST_F(Train, StopsAndResumesWithTheSameBits) {
  TrainCallbacks stopping;
  int steps = 0;
  stopping.step = [&](const StepReport&) { ++steps; };
  stopping.stop = [&] { return steps == 3; };
  const Plan cut = plan(config("cut"));
  const TrainResult stopped = train(cut, stopping);
  EXPECT_EQ(stopped.end, RunEnd::kInterrupted);
  EXPECT_EQ(stopped.step, 3);
  EXPECT_EQ(train(cut).end, RunEnd::kFinished);
  const std::string whole = trained("whole");
  EXPECT_EQ(read_file(folder("cut") / "final/model.safetensors"),
            read_file(Path(whole) / "final/model.safetensors"));
}

TEST_F(Train, ADryRunTrainsNothing) {
  const TrainResult result = train(plan(config("run")), {}, {.dry_run = true});
  EXPECT_EQ(result.end, RunEnd::kDryRun);
  EXPECT_FALSE(result.program.empty());
  EXPECT_FALSE(std::filesystem::exists(folder("run") / "final"));
}

TEST_F(Train, RanksAreThreads) {
  std::vector<std::int64_t> steps;
  TrainCallbacks callbacks;
  callbacks.step = [&](const StepReport& report) { steps.push_back(report.step); };
  testing::internal::CaptureStderr();
  const TrainResult result = train(plan(config("two"), {.ranks = 2}), callbacks);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_EQ(steps.size(), 6u);
  EXPECT_EQ(plan(config("other"), {.ranks = 2}).config().get("parallel.shard"), "2");
}

TEST_F(Train, AnExceptionOfACallbackEndsTheRun) {
  const Plan made = plan(config("run"));
  TrainCallbacks callbacks;
  callbacks.step = [](const StepReport& report) {
    if (report.step == 5) throw std::runtime_error("enough");
  };
  EXPECT_THROW(train(made, callbacks), std::runtime_error);
  std::int64_t first = 0;
  callbacks.step = [&](const StepReport& report) { first = first == 0 ? report.step : first; };
  EXPECT_EQ(train(made, callbacks).end, RunEnd::kFinished);
  EXPECT_EQ(first, 5);  // after the checkpoint of step 4
}

TEST_F(Train, ErrorsHaveTheirKind) {
  EXPECT_EQ(error_of([&] { train(plan(config("run", {"data.train=[\"/nowhere/x.txt\"]"}))); }).kind(),
            ErrorKind::kConfig);
  put_file(text_, "");
  EXPECT_EQ(error_of([&] { train(plan(config("empty"))); }).kind(), ErrorKind::kData);
  EXPECT_EQ(error_of([&] { (void)plan(config("run"), {.ranks = 0}); }).kind(), ErrorKind::kConfig);
}

}  // namespace
}  // namespace strata
