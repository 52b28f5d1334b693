// Every call with which a training run changes the disk goes wrong once: the process dies before it, or the
// disk is full from then on. Whatever happened, the same command ends with the bits of a run that nothing
// happened to.

#include "base/error.h"
#include "fixtures/child_process.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/tiny_run.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;

// One step is done. What goes wrong is the second one, whose save goes on beside the third, that one with its
// save, the final model and the reports. Which calls come between those of the save is not the same each
// time.
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
}  // namespace strata::train
