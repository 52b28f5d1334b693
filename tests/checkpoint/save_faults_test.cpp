// Every file system call of a save fails once, in every way. Afterwards the newest usable checkpoint is
// either the old one or the new one, bit for bit, and the next save succeeds and leaves no temporary files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/parallel.h"
#include "fixtures/child_process.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/small_run.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Scenario {
  const char* name;
  int64_t step;       // of the save that fails; the old checkpoint has step 100
  int64_t keep_last;  // 1: the save also prunes the old one
};

class SaveFaults : public testing::TestWithParam<Scenario> {
 protected:
  SaveFaults() : old_(1), new_(2) {
    set_compute_threads(1);  // as in the child processes, which make the same calls
    FaultyFileSystem plain;
    save_checkpoint(plain, scratch_ / "before", old_.content(100));
  }
  ~SaveFaults() override { set_compute_threads(available_processors()); }

  void fresh_folder() {
    fs::remove_all(folder());
    fs::copy(scratch_ / "before", folder(), fs::copy_options::recursive);
  }
  Path folder() const { return scratch_ / "run"; }
  CheckpointContent content() {
    auto content = new_.content(GetParam().step);
    content.retention.keep_last = GetParam().keep_last;
    content.model.max_shard_bytes = 60;  // two shards and an index
    return content;
  }

  // Returns whether the new checkpoint is found.
  bool check_old_or_new(const std::string& what) {
    SmallRun back(0);
    const auto loaded = load_newest_checkpoint(folder(), back.weights(), back.optimizer());
    if (!loaded) {
      ADD_FAILURE() << what << ": no checkpoint";
      return false;
    }
    const bool is_new = back == new_;
    EXPECT_TRUE(is_new || back == old_) << what << ": neither the old nor the new one";
    EXPECT_EQ(loaded->manifest.step, is_new ? GetParam().step : 100) << what;
    EXPECT_TRUE(loaded->skipped.empty()) << what << ": " << loaded->skipped[0].reason;
    return is_new;
  }

  void check_next_save(const std::string& what) {
    SmallRun next(3), back(0);
    FaultyFileSystem plain;
    auto content = next.content(300);
    content.retention.keep_last = 1;
    const auto saved = save_checkpoint(plain, folder(), content);
    EXPECT_TRUE(saved.warnings.empty()) << what << ": " << saved.warnings[0];
    load_newest_checkpoint(folder(), back.weights(), back.optimizer());
    EXPECT_EQ(back, next) << what;
    for (const auto& entry : fs::directory_iterator(folder())) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name == "latest" || name == ".lock" || name == "step-00000300" ||
                  name.starts_with("latest.tmp-"))
          << what << ": " << name << " was left";
    }
  }

  int64_t calls_of_a_save() {
    fresh_folder();
    FaultyFileSystem plain;
    save_checkpoint(plain, folder(), content());
    return plain.calls();
  }

  ScratchFolder scratch_;
  SmallRun old_, new_;
};

TEST_P(SaveFaults, ErrorsLeaveTheOldOrTheNew) {
  const int64_t calls = calls_of_a_save();
  ASSERT_GT(calls, 40);
  for (const FaultKind kind : {FaultKind::kError, FaultKind::kDiskFull, FaultKind::kShortWrite}) {
    int64_t thrown = 0;
    for (int64_t at = 1; at <= calls; ++at) {
      const std::string what = fmt::format("kind {} call {}", static_cast<int>(kind), at);
      fresh_folder();
      FaultyFileSystem faulty({.kind = kind, .at = at});
      bool failed = false;
      try {
        save_checkpoint(faulty, folder(), content());
      } catch (const WorldError&) {
        failed = true;
        ++thrown;
      }
      const bool is_new = check_old_or_new(what);
      EXPECT_TRUE(failed || is_new) << what << ": success without a checkpoint";
      if (failed && kind != FaultKind::kError) {
        for (const auto& entry : fs::directory_iterator(folder()))
          EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos)
              << what << ": leftovers";
      }
      check_next_save(what);
    }
    EXPECT_GE(thrown, 8) << "every short write must be noticed, one for each of eight files";
  }
}

TEST_P(SaveFaults, DeathLeavesTheOldOrTheNew) {
  const int64_t calls = calls_of_a_save();
  int64_t found_new = 0;
  for (const FaultKind kind : {FaultKind::kKillBefore, FaultKind::kKillAfter}) {
    for (int64_t at = 1; at <= calls; ++at) {
      const std::string what = fmt::format("kind {} call {}", static_cast<int>(kind), at);
      fresh_folder();
      const int status = exit_code_of_child([&] {
        FaultyFileSystem faulty({.kind = kind, .at = at});
        save_checkpoint(faulty, folder(), content());
      });
      ASSERT_EQ(status, FaultyFileSystem::kKilled) << what;
      found_new += check_old_or_new(what) ? 1 : 0;
      check_next_save(what);
    }
  }
  EXPECT_GT(found_new, 2);
  EXPECT_LT(found_new, 2 * calls);
}

// An error while a model folder is replaced leaves the old or the new folder and no temporary files.
TEST(ExportFaults, LeaveTheOldOrTheNew) {
  ScratchFolder scratch;
  const Path folder = scratch / "final";
  SmallRun old_state(1), new_state(2);
  FaultyFileSystem plain;
  write_hf_directory(plain, folder, new_state.content(1).model);
  const int64_t first_export = plain.calls();
  write_hf_directory(plain, folder, old_state.content(1).model);
  const int64_t calls = plain.calls() - first_export;
  ASSERT_GT(calls, 12);
  for (int64_t at = 1; at <= calls; ++at) {
    write_hf_directory(plain, folder, old_state.content(1).model);
    FaultyFileSystem faulty({.kind = FaultKind::kError, .at = at});
    bool failed = false;
    try {
      write_hf_directory(faulty, folder, new_state.content(1).model);
    } catch (const WorldError&) {
      failed = true;
    }
    SmallRun back(0);
    load_hf_tensors(folder, back.weights());
    const bool is_new = back.embedding == new_state.embedding && back.conv == new_state.conv;
    EXPECT_TRUE(is_new || (back.embedding == old_state.embedding && back.conv == old_state.conv)) << at;
    EXPECT_TRUE(failed || is_new) << at;
    const auto entries = std::distance(fs::directory_iterator(scratch.path()), {});
    EXPECT_TRUE(entries == 1 || at + 1 >= calls) << at;  // only the last calls remove the old folder or sync
    fs::remove_all(folder.string() + ".old-" + std::to_string(::getpid()));
  }
}

INSTANTIATE_TEST_SUITE_P(, SaveFaults,
                         testing::Values(Scenario{"next_step", 200, 3},
                                         Scenario{"next_step_and_prune", 200, 1},
                                         Scenario{"same_step", 100, 1}),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace strata::checkpoint
