// Ranks as processes under mpirun: the bits of ranks that are threads, and one of them killed.
#include <csignal>
#include <cstdlib>

#include <chrono>
#include <thread>

#include "fixtures/tiny_run.h"

namespace strata::train {
namespace {

class RankProcesses : public testing::Test {
 protected:
  void SetUp() override {
#ifndef STRATA_MPIRUN
    GTEST_SKIP() << "built without MPI";
#endif
    if (shell(quiet(on(2) + "true")) != 0) GTEST_SKIP() << "mpirun starts no processes here: " << output();
  }
  // Exit code of a command line in a shell.
  static int shell(const std::string& line) {
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string strata(const std::string& name, const std::string& sets) const {
    put_file(tiny_.path(name + ".toml"), tiny_.toml(name));
    return std::string(STRATA_PROGRAM) + " train " + tiny_.path(name + ".toml").string() + sets;
  }
  std::string quiet(const std::string& line) const {
    return line + " > " + tiny_.path("output").string() + " 2>&1";
  }
  std::string output() const {
    return read_file(tiny_.path("output"));
  }
  static std::string on(int processes) {
#ifdef STRATA_MPIRUN
    return std::string(STRATA_MPIRUN) +
           " --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none -n " +
           std::to_string(processes) + " ";
#else
    return std::to_string(processes);
#endif
  }

  TinyRun tiny_;
};

TEST_F(RankProcesses, TrainTheBitsOfThreads) {
  const std::string sets = " --set parallel.zero=2 --set training.micro_batch_size=1";
  ASSERT_EQ(shell(quiet(strata("threads", sets + " --ranks 3"))), 0) << output();
  ASSERT_EQ(shell(quiet(on(3) + strata("processes", sets))), 0) << output();
  expect_same_bits(bits_of(tiny_.folder("threads"), 6), bits_of(tiny_.folder("processes"), 6));
  for (const char* log : {"rank-00000.log", "rank-00002.log"})
    EXPECT_TRUE(std::filesystem::exists(tiny_.folder("processes") / "logs" / log)) << log;
}

TEST_F(RankProcesses, OneThatIsKilledEndsAllAndNothingIsLost) {
  const std::string sets = " --set parallel.zero=3 --set training.steps=400 --set checkpoint.interval=40";
  ASSERT_EQ(shell(quiet(strata("whole", sets + " --ranks 2"))), 0) << output();
  // The last of the processes that train, once there is a checkpoint.
  const std::string name = tiny_.path("killed.toml").string();
  const Path checkpoint = tiny_.folder("killed") / "checkpoints" / "step-00000040";
  std::thread killer([&] {
    while (!std::filesystem::exists(checkpoint)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    shell("kill -9 $(pgrep -f '[s]trata train " + name + "' | tail -n 1)");
  });
  const int code = shell(quiet(on(2) + strata("killed", sets)));
  killer.join();
  EXPECT_NE(code, 0) << output();
  ASSERT_EQ(shell(quiet(on(2) + strata("killed", sets))), 0) << output();
  expect_same_bits(bits_of(tiny_.folder("whole"), 400), bits_of(tiny_.folder("killed"), 400));
  EXPECT_EQ(metrics_of(tiny_.folder("whole")).steps.size(), metrics_of(tiny_.folder("killed")).steps.size());
}

TEST_F(RankProcesses, WhatOneRefusesEndsAll) {
  EXPECT_EQ(shell(quiet(on(2) + strata("refused", " --set parallel.shard=3"))), 2) << output();
  EXPECT_NE(output().find("replicate = 1, shard = 2"), std::string::npos) << output();
  EXPECT_EQ(shell(quiet(on(2) + strata("twice", " --ranks 2"))), 2) << output();
}

}  // namespace
}  // namespace strata::train
