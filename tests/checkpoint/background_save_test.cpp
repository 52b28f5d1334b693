#include "checkpoint/background_save.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "base/error.h"
#include "checkpoint/shared_folder.h"
#include "comm/exchange.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/split_run.h"
#include "fixtures/stopped_disk.h"

namespace strata::checkpoint {
namespace {

struct OneRank {
  Layout layout = layouts()[0];
  Part weights{layout, 0}, moments{layout, 0};
  explicit OneRank(uint64_t seed) { fill(seed); }
  void fill(uint64_t seed) {
    weights.fill(0, seed);
    moments.fill(0, seed + 1);
  }
  void expect_in(const Path& checkpoint, uint64_t seed) {
    Part weights_back(layout, 0), moments_back(layout, 0);
    load_checkpoint(checkpoint, weights_back.views(), moments_back.views("m/"));
    EXPECT_EQ(weights_back.wrong(0, seed), 0);
    EXPECT_EQ(moments_back.wrong(0, seed + 1), 0);
  }
};

constexpr auto kMoment = std::chrono::milliseconds(100);

TEST(BackgroundSave, AnUpdateWaitsForUnreadState) {
  ScratchFolder scratch;
  OneRank state(1);
  StoppedDisk disk;
  BackgroundSave saving(disk, scratch.path());
  EXPECT_FALSE(saving.finish().has_value());
  saving.before_update();  // nothing to wait for
  saving.begin(content_of(state.weights, state.moments, 7));
  auto update = std::async(std::launch::async, [&] {
    saving.before_update();
    state.fill(2);
  });
  EXPECT_EQ(update.wait_for(kMoment), std::future_status::timeout);
  EXPECT_TRUE(saving.running());
  disk.go();
  update.get();
  const auto saved = saving.finish();
  ASSERT_TRUE(saved.has_value());
  EXPECT_GT(saved->saved.bytes, 1'000'000u);
  EXPECT_FALSE(saving.running());
  EXPECT_GT(saved->seconds, 0.0);
  EXPECT_GT(saved->cpu_seconds, 0.0);
  state.expect_in(saved->saved.path, 1);
  EXPECT_FALSE(saving.finish().has_value()) << "returned twice";
}

TEST(BackgroundSave, AnUpdateDoesNotWaitIfTheStagingBufferSuffices) {
  ScratchFolder scratch;
  OneRank state(1);
  StoppedDisk disk;
  BackgroundSave saving(disk, scratch.path(), {}, 16 << 20);
  saving.begin(content_of(state.weights, state.moments, 7));
  saving.before_update();  // while the disk is stopped
  EXPECT_TRUE(saving.running());
  state.fill(2);
  saving.before_update();
  disk.go();
  state.expect_in(saving.finish()->saved.path, 1);
  saving.begin(content_of(state.weights, state.moments, 8));
  saving.before_update();
  state.fill(3);
  EXPECT_THROW(saving.begin(content_of(state.weights, state.moments, 9)), InternalError);
  state.expect_in(saving.finish()->saved.path, 2);
  saving.begin(content_of(state.weights, state.moments, 9));
  state.expect_in(saving.finish()->saved.path, 3);
}

// Several saves, each during collectives of another group.
TEST(BackgroundSave, RanksSaveTogetherDuringTraining) {
  for (const size_t which : {size_t{1}, size_t{3}, size_t{6}}) {
    const Layout layout = layouts()[which];
    for (const int64_t staging : {int64_t{0}, int64_t{1} << 20, int64_t{16} << 20}) {
      ScratchFolder scratch;
      comm::run_local_ranks(static_cast<int>(layout.mesh.ranks()), [&](comm::World& world) {
        set_compute_threads(1);
        std::vector<int> all(static_cast<size_t>(world.size()));
        std::iota(all.begin(), all.end(), 0);
        const auto training = world.group(all, "training"), saves = world.group(all, "saves");
        const int rank = world.rank();
        Part weights(layout, rank), moments(layout, rank);
        FaultyFileSystem plain;
        BackgroundSave saving(plain, scratch.path(), *saves, staging);
        for (uint64_t step = 1; step <= 4; ++step) {
          weights.fill(rank, step);
          moments.fill(rank, step + 1);
          saving.finish();
          saving.begin(content_of(weights, moments, static_cast<int64_t>(step)));
          for (int i = 0; i < 20; ++i) EXPECT_EQ(comm::sum_over(*training, 1), world.size());
          saving.before_update();
        }
        weights.fill(rank, 99);
        EXPECT_TRUE(saving.finish().has_value());
        const auto loaded =
            load_newest_checkpoint(scratch.path(), weights.views(), moments.views("m/"), {}, *saves);
        ASSERT_TRUE(loaded.has_value());
        EXPECT_EQ(loaded->manifest.step, 4);
        EXPECT_TRUE(loaded->skipped.empty());
        EXPECT_EQ(weights.wrong(rank, 4), 0);
        EXPECT_EQ(moments.wrong(rank, 5), 0);
        if (rank == 0) {
          EXPECT_TRUE(verify_checkpoint(loaded->path).empty());
        }
      });
    }
  }
  set_compute_threads(available_processors());
}

TEST(BackgroundSave, FinishThrowsAnErrorOnAllRanks) {
  const Layout layout = layouts()[6];
  ScratchFolder scratch;
  on_ranks(layout, [&](comm::Communicator& group) {
    const int rank = group.rank();
    Part weights(layout, rank), moments(layout, rank);
    weights.fill(rank, 1);
    moments.fill(rank, 2);
    FaultyFileSystem files({.kind = rank == 2 ? FaultKind::kError : FaultKind::kNone, .at = 2});
    BackgroundSave saving(files, scratch.path(), group);
    saving.begin(content_of(weights, moments, 1));
    saving.before_update();
    try {
      saving.finish();
      ADD_FAILURE() << "rank " << rank << " got no error";
    } catch (const WorldError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("rank 2: ")) << error.what();
    }
    saving.begin(content_of(weights, moments, 3));
    EXPECT_EQ(saving.finish()->saved.path.filename(), "step-00000003");
  });
  EXPECT_EQ(list_checkpoints(scratch.path()).size(), 1u);
  set_compute_threads(available_processors());
}

TEST(SharedFolder, RanksWithAnotherFolderAreNamed) {
  ScratchFolder scratch;
  on_ranks(layouts()[4], [&](comm::Communicator& group) {
    EXPECT_NO_THROW(check_shared_folder(group, posix_file_system(), scratch / "run"));
    const Path own = scratch / (group.rank() == 2 ? "another" : "run");
    try {
      check_shared_folder(group, posix_file_system(), own, 0.1);
      ADD_FAILURE() << "rank " << group.rank();
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(": rank 2 on "), std::string::npos) << what;
      EXPECT_EQ(what.find("rank 1"), std::string::npos) << what;
    }
    FaultyFileSystem full({.kind = group.rank() == 0 ? FaultKind::kDiskFull : FaultKind::kNone, .at = 1});
    EXPECT_THROW(check_shared_folder(group, full, scratch / "run"), WorldError);
  });
  EXPECT_TRUE(std::filesystem::is_empty(scratch / "run"));
  set_compute_threads(available_processors());
}

}  // namespace
}  // namespace strata::checkpoint
