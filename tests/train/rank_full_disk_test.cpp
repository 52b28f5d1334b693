// A disk that is full for only one of several ranks: all end with that rank's error, no save is lost, and the
// same command resumes.
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "fixtures/tiny_run.h"
#include "train/shared_run.h"

namespace strata::training {
namespace {

class FullDiskOfOneRank : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  // Trains with ranks as threads, each with a separate file system; returns the number of `victim`'s calls.
  int64_t train(const std::string& name, int victim, FaultPlan plan) const {
    SharedRun shared;
    int64_t calls = 0;
    comm::run_local_ranks(kRanks, [&](comm::World& world) {
      FaultyFileSystem files(world.rank() == victim ? plan : FaultPlan{});
      const RunOptions options{
          .config = tiny_.config({"parallel.zero=2", "training.micro_batch_size=1"}, name),
          .files = &files,
          .shared = &shared};
      train_run(world, options, [] { return false; });
      if (world.rank() == victim) calls = files.calls();
    });
    return calls;
  }

  TinyRun tiny_;
};

TEST_F(FullDiskOfOneRank, EndsAllRanksAndLosesNothing) {
  train("whole", 0, {});
  const FinalBits wanted = bits_of(tiny_.folder("whole"), 6);
  const auto steps = metrics_of(tiny_.folder("whole")).steps;
  for (const int victim : {0, 1, 2}) {
    const int64_t calls = train("counting", victim, {});
    std::filesystem::remove_all(tiny_.folder("counting"));
    ASSERT_GT(calls, 10) << victim;
    int64_t failed = 0;
    for (int64_t at = 1; at <= calls; at += 1 + calls / 10) {
      const std::string what =
          "rank " + std::to_string(victim) + ", full from call " + std::to_string(at) + " on";
      try {
        train("run", victim, {.kind = FaultKind::kDiskFull, .at = at});
      } catch (const WorldError& error) {
        ++failed;
        EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << what << error.what();
      }
      for (const auto& listed : checkpoint::list_checkpoints(tiny_.folder() / "checkpoints"))
        EXPECT_TRUE(checkpoint::verify_checkpoint(listed.path).empty()) << what;
      ASSERT_NO_THROW(train("run", victim, {})) << what;
      expect_same_bits(bits_of(tiny_.folder(), 6), wanted, what);
      EXPECT_EQ(metrics_of(tiny_.folder()).steps, steps) << what;
      std::filesystem::remove_all(tiny_.folder());
      if (HasFailure()) return;
    }
    EXPECT_GT(failed, 4) << victim;
  }
}

// The save fails during the steps that follow it, and all ranks name the rank that failed.
TEST_F(FullDiskOfOneRank, IsNamedWhenASaveFails) {
  FaultPlan plan{.kind = FaultKind::kDiskFull, .at = 2};  // the call after that of its log file
  try {
    train("run", 2, plan);
    ADD_FAILURE() << "the disk was not full";
  } catch (const WorldError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("rank 2: [test] cannot write: No space left"))
        << error.what();
  }
  const MetricsLog log = metrics_of(tiny_.folder());
  EXPECT_EQ(find_event(log, "save"), nullptr);
  EXPECT_GE(log.steps.size(), 2u);
  EXPECT_TRUE(checkpoint::list_checkpoints(tiny_.folder() / "checkpoints").empty());
}

}  // namespace
}  // namespace strata::training
