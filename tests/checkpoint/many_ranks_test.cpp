// Checks that several ranks write the same checkpoint bytes as one rank and read them back, in every layout.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/tensor_files.h"
#include "fixtures/child_process.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/split_run.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

void save(const Layout& layout, const Path& folder, uint64_t seed, int64_t step) {
  on_ranks(layout, [&](comm::Communicator& group) {
    Part weights(layout, group.rank()), moments(layout, group.rank());
    weights.fill(group.rank(), seed);
    moments.fill(group.rank(), seed + 1);
    FaultyFileSystem without_sync;
    const auto saved = save_checkpoint(without_sync, folder, content_of(weights, moments, step), group);
    EXPECT_TRUE(saved.warnings.empty()) << saved.warnings[0];
    EXPECT_EQ(saved.path.filename(), fmt::format("step-{:08}", step));
  });
}

// Returns a manifest without its creation time and its checksum.
std::string without_time_and_checksum(const Path& manifest) {
  std::string out;
  std::istringstream lines(read_file(manifest));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"created\"") == std::string::npos && !line.starts_with(" \"checksum\""))
      out += line + '\n';
  }
  return out;
}

class ManyRanks : public testing::TestWithParam<size_t> {
 protected:
  ~ManyRanks() override { set_compute_threads(available_processors()); }
  Layout layout() const { return layouts()[GetParam()]; }
};

TEST_P(ManyRanks, WriteSameBytesAsOneRankAndLoadThem) {
  ScratchFolder scratch;
  save(layouts()[0], scratch / "one", 5, 3);
  save(layout(), scratch / "many", 5, 3);
  const Path one = scratch / "one/step-00000003", many = scratch / "many/step-00000003";
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(one)) {
    const auto name = entry.path().filename();
    ++files;
    if (name == "manifest.json") {
      EXPECT_EQ(without_time_and_checksum(many / name), without_time_and_checksum(one / name));
    } else {
      EXPECT_TRUE(read_file(many / name) == read_file(one / name)) << name;
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(many), {}), files);
  EXPECT_GT(files, 6);
  EXPECT_TRUE(verify_checkpoint(many).empty());
  on_ranks(layout(), [&](comm::Communicator& group) {
    Part weights(layout(), group.rank()), moments(layout(), group.rank());
    const auto loaded =
        load_newest_checkpoint(scratch / "one", weights.views(), moments.views("m/"), {}, group);
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->manifest.step, 3);
    EXPECT_EQ(weights.wrong(group.rank(), 5), 0);
    EXPECT_EQ(moments.wrong(group.rank(), 6), 0);
  });
}

// Small blocks cover several rounds, several chunks per tensor, and rounds with fewer blocks than ranks.
TEST_P(ManyRanks, ExchangeSmallBlocks) {
  ScratchFolder scratch;
  for (const int64_t block : {int64_t{4096}, int64_t{65536}, int64_t{1} << 20}) {
    const auto write = [&](const Layout& from, const Path& folder) {
      fs::create_directories(folder);
      std::vector<StoredFile> stored;
      on_ranks(from, [&](comm::Communicator& group) {
        Part part(from, group.rank());
        part.fill(group.rank(), 9);
        std::vector<TensorFileContent> contents{{"a.safetensors", {}, DType::kBF16},
                                                {"b.safetensors", {}, {}}};
        for (const auto& view : part.views()) {
          for (auto& content : contents) content.tensors.push_back(view.view());
        }
        Together ranks(group);
        FaultyFileSystem without_sync;
        auto written = write_tensor_files(without_sync, folder, contents, ranks, {}, block);
        if (group.rank() == 0) stored = std::move(written);
      });
      return stored;
    };
    const auto one = write(layouts()[0], scratch / "one"), many = write(layout(), scratch / "many");
    fs::remove_all(scratch / "many");
    ASSERT_EQ(write(layout(), scratch / "many").size(), 2u);
    for (size_t file = 0; file < one.size(); ++file) {
      EXPECT_TRUE(read_file(scratch / "many" / one[file].name) == read_file(scratch / "one" / one[file].name))
          << block;
      for (size_t i = 0; i < one[file].tensors.size(); ++i)
        EXPECT_EQ(many[file].tensors[i].checksums, one[file].tensors[i].checksums)
            << one[file].tensors[i].name;
    }
    fs::remove_all(scratch / "many");
  }
}

INSTANTIATE_TEST_SUITE_P(, ManyRanks, testing::Range<size_t>(0, layouts().size()), [](const auto& index) {
  std::string name = layouts()[index.param].name;
  std::erase(name, ',');
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

// If a byte is damaged that only one rank reads, all ranks skip the checkpoint and load the previous one.
TEST(ManyRanksLoading, DamageFoundByOneRankIsSkippedByAll) {
  const Layout layout = layouts()[4];
  ScratchFolder scratch;
  save(layout, scratch.path(), 1, 100);
  save(layout, scratch.path(), 2, 200);
  const Path damaged = scratch / "step-00000200/optimizer.safetensors";
  std::string bytes = read_file(damaged);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  put_file(damaged, bytes);
  on_ranks(layout, [&](comm::Communicator& group) {
    Part weights(layout, group.rank()), moments(layout, group.rank());
    const auto loaded =
        load_newest_checkpoint(scratch.path(), weights.views(), moments.views("m/"), {}, group);
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->manifest.step, 100);
    ASSERT_EQ(loaded->skipped.size(), 1u);
    EXPECT_NE(loaded->skipped[0].reason.find("does not match its checksum"), std::string::npos);
    EXPECT_EQ(weights.wrong(group.rank(), 1), 0);
    EXPECT_EQ(moments.wrong(group.rank(), 2), 0);
  });
}

// Each file system call of each rank fails in turn. Either all ranks throw the same error or none throws, and
// the newest checkpoint must be complete.
TEST(ManyRanksSaving, ErrorOnOneRankIsThrownOnAll) {
  const Layout layout = layouts()[3];
  const int ranks = static_cast<int>(layout.mesh.ranks());
  ScratchFolder scratch;
  save(layout, scratch / "before", 1, 100);
  const Path folder = scratch / "run";
  const auto save_with = [&](int failing_rank, FaultPlan plan, int64_t& calls) {
    fs::remove_all(folder);
    fs::copy(scratch / "before", folder, fs::copy_options::recursive);
    std::mutex mutex;
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    on_ranks(layout, [&](comm::Communicator& group) {
      Part weights(layout, group.rank()), moments(layout, group.rank());
      weights.fill(group.rank(), 2);
      moments.fill(group.rank(), 3);
      FaultyFileSystem files(group.rank() == failing_rank ? plan : FaultPlan{});
      try {
        save_checkpoint(files, folder, content_of(weights, moments, 200), group);
      } catch (const WorldError& error) {
        errors[static_cast<size_t>(group.rank())] = error.what();
      }
      std::lock_guard lock(mutex);
      if (group.rank() == failing_rank) calls = files.calls();
    });
    return errors;
  };
  for (int failing_rank = 0; failing_rank < ranks; ++failing_rank) {
    int64_t calls = 0, unused = 0, failed = 0;
    save_with(failing_rank, {}, calls);
    EXPECT_GT(calls, 0);
    for (const FaultKind kind : {FaultKind::kError, FaultKind::kDiskFull}) {
      for (int64_t at = 1; at <= calls; ++at) {
        const auto errors = save_with(failing_rank, {.kind = kind, .at = at}, unused);
        SCOPED_TRACE(fmt::format("rank {} call {} of {}: {}", failing_rank, at, calls, errors[0]));
        const bool any = !errors[0].empty();
        failed += any ? 1 : 0;
        for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
        EXPECT_EQ(any, errors[0].starts_with(fmt::format("rank {}: ", failing_rank)));
        const auto found = find_checkpoint(folder, {.verify = true});
        ASSERT_TRUE(found.has_value());
        EXPECT_TRUE(found->skipped.empty());
        EXPECT_TRUE(found->manifest.step == 200 || any)
            << "the save reported success, but its checkpoint is missing";
        // Rank 0 removes the temporary folder, unless it is the failing rank.
        for (const auto& entry : fs::directory_iterator(folder)) {
          const bool is_temporary = entry.path().filename().string().find(".tmp-") != std::string::npos;
          EXPECT_FALSE(is_temporary && failing_rank != 0) << entry.path();
        }
      }
    }
    EXPECT_GT(failed, 4);
  }
}

// The whole job is killed at a file system call of one rank. The newest checkpoint must be complete, and the
// next save, with a different number of ranks, must succeed and leave no temporary files.
TEST(ManyRanksSaving, KilledSaveLeavesOldOrNewCheckpoint) {
  const Layout layout = layouts()[2];
  ScratchFolder scratch;
  save(layout, scratch / "before", 1, 100);
  const Path folder = scratch / "run";
  // Saves in a child process and returns its exit status.
  const auto save_in_child = [&](int failing_rank, FaultPlan plan) {
    fs::remove_all(folder);
    fs::copy(scratch / "before", folder, fs::copy_options::recursive);
    return exit_code_of_child([&] {
      on_ranks(layout, [&](comm::Communicator& group) {
        Part weights(layout, group.rank()), moments(layout, group.rank());
        weights.fill(group.rank(), 2);
        moments.fill(group.rank(), 3);
        FaultyFileSystem files(group.rank() == failing_rank ? plan : FaultPlan{});
        save_checkpoint(files, folder, content_of(weights, moments, 200), group);
      });
    });
  };
  int64_t found_new = 0, kills = 0;
  for (int failing_rank = 0; failing_rank < 2; ++failing_rank) {
    for (const FaultKind kind : {FaultKind::kKillBefore, FaultKind::kKillAfter}) {
      for (int64_t at = 1;; ++at) {
        SCOPED_TRACE(fmt::format("rank {} call {} kind {}", failing_rank, at, static_cast<int>(kind)));
        const int status = save_in_child(failing_rank, {.kind = kind, .at = at});
        if (status == 0) break;  // the save made fewer calls and finished
        ASSERT_EQ(status, FaultyFileSystem::kKilled);
        ++kills;
        const auto found = find_checkpoint(folder, {.verify = true});
        ASSERT_TRUE(found.has_value());
        EXPECT_TRUE(found->skipped.empty());
        found_new += found->manifest.step == 200 ? 1 : 0;
        if (at % 5 != 1) continue;
        save(layouts()[0], folder, 4, 300);
        for (const auto& entry : fs::directory_iterator(folder))
          EXPECT_EQ(entry.path().filename().string().find("tmp-"), std::string::npos) << entry.path();
      }
    }
  }
  EXPECT_GT(kills, 60);
  EXPECT_GT(found_new, 2);
  EXPECT_LT(found_new, kills / 2);
}

}  // namespace
}  // namespace strata::checkpoint
