// Each call of a training run that changes the disk fails once: the process is killed before it, or the disk
// is full from then on. In every case the same command finishes with the bits of an undisturbed run.

#include "base/error.h"
#include "fixtures/child_process.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

namespace fs = std::filesystem;

// The run starts with one finished step. Failures hit the second step, whose save overlaps the third, the
// third step with its save, the final model and the reports. The order of calls differs from run to run,
// because the save runs in the background.
class SaveCalls : public testing::Test {
 protected:
  SaveCalls() {
    train("before", {}, 1);
    fs::copy(tiny_.folder("before"), tiny_.folder("whole"), fs::copy_options::recursive);
    train("whole", {});
    wanted_ = bits_of(tiny_.folder("whole"), 3);
    wanted_steps_ = metrics_of(tiny_.folder("whole")).steps;
    final_model_ = read_file(tiny_.folder("whole") / "final/model.safetensors");
  }

  int64_t train(const std::string& name, FaultPlan plan, int64_t steps = -1) {
    FaultyFileSystem files(plan);
    RunOptions options{.config = tiny_.config(
                           {"training.steps=3", "checkpoint.interval=1", "model.num_hidden_layers=1"}, name)};
    options.files = &files;
    tiny_.train_with(options, steps);
    return files.calls();
  }
  void fresh_folder() {
    fs::remove_all(tiny_.folder());
    fs::copy(tiny_.folder("before"), tiny_.folder(), fs::copy_options::recursive);
  }
  void expect_recovery(const std::string& what) {
    ASSERT_NO_THROW(train("run", {})) << what;
    expect_same_bits(bits_of(tiny_.folder(), 3), wanted_, what);
    EXPECT_EQ(metrics_of(tiny_.folder()).steps, wanted_steps_) << what;
    EXPECT_TRUE(read_file(tiny_.folder() / "final/model.safetensors") == final_model_) << what;
    for (const auto& entry : fs::directory_iterator(tiny_.folder() / "checkpoints"))
      EXPECT_EQ(entry.path().filename().string().find("step-00000003.tmp"), std::string::npos) << what;
  }

  TinyRun tiny_;
  FinalBits wanted_;
  std::vector<std::string> wanted_steps_;
  std::string final_model_;
};

TEST_F(SaveCalls, Death) {
  fresh_folder();
  const int64_t calls = train("run", {});
  ASSERT_GT(calls, 90);
  for (int64_t at = 1; at <= calls; ++at) {
    fresh_folder();
    const int status = exit_code_of_child([&] { train("run", {.kind = FaultKind::kKillBefore, .at = at}); });
    ASSERT_EQ(status, FaultyFileSystem::kKilled) << "call " << at << " of " << calls;
    expect_recovery("killed at call " + std::to_string(at));
    if (HasFailure()) break;
  }
}

TEST_F(SaveCalls, AFullDisk) {
  fresh_folder();
  const int64_t calls = train("run", {});
  int64_t failed = 0;
  for (int64_t at = 1; at <= calls; at += 3) {
    fresh_folder();
    const std::string what = "full from call " + std::to_string(at);
    try {
      train("run", {.kind = FaultKind::kDiskFull, .at = at});
    } catch (const WorldError& error) {
      ++failed;
      EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << what;
    }
    expect_same_bits(bits_of(tiny_.folder(), 1), bits_of(tiny_.folder("before"), 1), what);
    expect_recovery(what);
    if (HasFailure()) break;
  }
  EXPECT_GT(failed, calls / 6);
}

}  // namespace
}  // namespace strata::training
