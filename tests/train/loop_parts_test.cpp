// Parts of the training loop: run positions and stopping.
#include <atomic>
#include <limits>

#include "config/resolve.h"
#include "fixtures/tiny_run.h"
#include "train/run_position.h"

namespace strata::training {
namespace {

// A position returns to an earlier state and repeats the same samples, or continues with another order.
TEST(RunPosition, ReturnsToAnEarlierState) {
  const TinyRun tiny;
  config::RunConfig config = tiny.config({"data.epochs=1", "training.steps=1000"});
  const models::ModelConfig model = config::resolve_model(config);
  const config::RunData data = config::resolve_data(config, model, nullptr, posix_file_system());
  program::CompileOptions options;
  options.model = model;
  const program::Ranks ranks(options);
  const RunInputs inputs{config, model, nullptr, data, ranks};
  RunPosition position(inputs, {});
  const auto order = position.samples()->fingerprint();
  EXPECT_EQ(position.total_steps(), (6000 - 1) / 16 / 8 + 1) << "all data, with an incomplete last batch";
  for (int step = 0; step < 3; ++step) position.advance();
  const TrainingState early = position.state();
  EXPECT_EQ(early.step, 3);
  EXPECT_EQ(early.samples, 3 * 8);
  EXPECT_EQ(early.next_sample, 3 * 8);
  while (!position.is_at_end()) position.advance();
  EXPECT_EQ(position.state().samples, (6000 - 1) / 16) << "each sample once";
  const auto before = position.samples();
  position.continue_from(early);
  EXPECT_EQ(to_json(position.state()), to_json(early));
  EXPECT_FALSE(position.is_reordered());
  EXPECT_NE(position.samples(), before) << "a new object, so readers notice the change";
  EXPECT_EQ(position.samples()->fingerprint(), order);

  TrainingState of_another_order = early;
  of_another_order.order = "another";
  position.continue_from(of_another_order);
  EXPECT_TRUE(position.is_reordered());
  EXPECT_EQ(position.state().origin.sample, early.next_sample);
  EXPECT_EQ(position.state().next_sample, early.next_sample);
}

// On one rank or several: a request during the evaluation after a step ends the run at that step.
TEST(Stopping, IsCheckedAfterEvaluations) {
  const TinyRun tiny;
  put_tokens(tiny.path("valid.bin"), tiny_tokens(400, 31));
  for (const int ranks : {1, 2}) {
    FaultyFileSystem quick;
    const Path folder = tiny.folder(fmt::format("ranks{}", ranks));
    const auto config = tiny.config({"data.valid=[\"" + tiny.path("valid.bin").string() + "\"]",
                                     "eval.interval=\"2 steps\"", "parallel.shard=-1"},
                                    folder.filename().string());
    // After steps 1 and 2 each rank checks once; the next check follows the evaluation.
    std::atomic<int64_t> asked = 0;
    const TrainResult result = train_on_threads({.config = config, .files = &quick}, ranks, [&] {
      return std::filesystem::exists(folder / "metrics.jsonl") && ++asked > 2 * ranks;
    });
    EXPECT_EQ(result.end, RunEnd::kInterrupted) << ranks;
    EXPECT_EQ(result.step, 2) << ranks;
    EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints/step-00000002")) << ranks;
  }
}

}  // namespace
}  // namespace strata::training
