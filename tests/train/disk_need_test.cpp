#include "train/disk_need.h"

#include <gtest/gtest.h>

#include "fixtures/faulty_file_system.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

int64_t checkpoints(const config::CheckpointTable& table, int64_t existing = 0, int64_t done = 0,
                    bool evaluates = true) {
  return disk_need(table, evaluates, existing, done, 1000, 4096).checkpoints;
}

TEST(DiskNeed, CountsKeptCheckpointsAndTheOneBeingWritten) {
  config::CheckpointTable table;
  table.interval = config::every_steps(100);
  table.keep_last = 3;
  table.keep_best = 2;
  EXPECT_EQ(checkpoints(table), 6);
  EXPECT_EQ(checkpoints(table, 0, 0, false), 4);  // without evaluations there is no best one
  table.keep_every = config::every_steps(200);
  EXPECT_EQ(checkpoints(table), 11);  // one save every 100 steps, and the last
  table.keep_every = config::every_steps(500);
  EXPECT_EQ(checkpoints(table), 8);
  EXPECT_EQ(checkpoints(table, 5, 600), 2);   // five exist
  EXPECT_EQ(checkpoints(table, 9, 600), 1);   // the one being written
  EXPECT_EQ(checkpoints(table, 1, 950), 1);   // one more save
  EXPECT_EQ(checkpoints(table, 1, 1000), 0);  // finished
  table.interval = {.kind = config::Interval::Kind::kTokens, .count = 4096 * 500, .seconds = 0};
  EXPECT_EQ(checkpoints(table), 3);
  table.interval = config::kAutoInterval;
  EXPECT_EQ(checkpoints(table), 8);
}

// The disk has space for some checkpoints but not for all kept ones: refused before the first step.
TEST(DiskNeed, ARunThatWouldFillTheDiskIsRefused) {
  const TinyRun tiny;
  FaultyFileSystem files({.free_bytes = 1000000});
  for (const bool dry_run : {true, false}) {
    RunOptions options{.config = tiny.config({"checkpoint.keep_last=1", "training.steps=1"}),
                       .dry_run = dry_run};
    options.files = &files;
    EXPECT_NO_THROW(tiny.train_with(options));
    options.config =
        tiny.config({"checkpoint.keep_last=1000", "checkpoint.interval=\"1 steps\"", "training.steps=50"});
    options.accept_changes = true;
    try {
      tiny.train_with(options);
      ADD_FAILURE() << "not refused";
    } catch (const WorldError& error) {
      EXPECT_NE(std::string(error.what()).find("checkpoints of"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace strata::training
