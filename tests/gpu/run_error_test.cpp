// Errors during runs on the GPU device, in the words that a user reads, of the program itself: what failed, which checkpoint is
// the newest, and that the same command goes on from it with the same bits. The driver is the twin, with planted faults.
#include <thread>

#include "base/clock.h"
#include "fixtures/environment.h"
#include "fixtures/program_process.h"
#include "run_fixture.h"

namespace strata::training {
namespace {

const Sets kOfProgram{"training.global_batch_size=1", "checkpoint.interval=\"2 steps\""};

class GpuError : public GpuRun {
 protected:
  std::vector<std::string> command(const std::string& name, const Sets& sets) const {
    const Path file = tiny_.path(name + ".toml");
    put_file(file, tiny_.toml(name));
    std::vector<std::string> words{"train", file.string()};
    for (const std::string& set : kSmall + kOnGpu + kOfProgram + sets) {
      words.emplace_back("--set");
      words.push_back(set);
    }
    return words;
  }
  // The exit code of the program; with these settings of the twin. A hang ends the test program (tests/runner).
  int run(const std::string& name, const std::string& twin = "", const Sets& sets = {}) const {
    const fixtures::Environment planted("STRATA_TWIN", twin);
    return Process(command(name, sets), output_).wait();
  }
  std::string output() const { return read_file(output_); }
  void expect_output(const std::vector<std::string>& parts) const {
    for (const std::string& part : parts)
      EXPECT_NE(output().find(part), std::string::npos) << part << "\nis not in\n" << output();
  }

  const Path output_ = tiny_.path("output");
};

TEST_F(GpuError, NamesTheInstructionAndTheCheckpointAndResumes) {
  ASSERT_EQ(run("whole"), 0) << output();
  struct Case {
    const char *name, *twin;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"address",
       "fault=cuLaunchKernel:330:700",
       {"an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)", "a kernel failed"}},
      {"memory",
       "fault=cuLaunchKernel:480:214",
       {"(CUDA_ERROR_ECC_UNCORRECTABLE, 214)", "the GPU's memory has an error"}},
      {"copy", "fault=cuMemcpyDtoHAsync:50:719", {"(CUDA_ERROR_LAUNCH_FAILED, 719)", "Xid"}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(run(one.name, one.twin), 4) << output();
    expect_output(one.parts);
    expect_output({"restart the run", "run the same command again to resume"});
    EXPECT_EQ(output().find("had no effect"), std::string::npos) << output();
    EXPECT_EQ(run(one.name), 0) << output();
    expect_same(one.name, "whole", 6);
  }
}

TEST_F(GpuError, FindsAtTheStartWhatDoesNotFit) {
  const auto refused = [&](int code, const std::string& twin, const Sets& sets,
                           const std::vector<std::string>& parts) {
    EXPECT_EQ(run("run", twin, sets), code) << output();
    expect_output(parts);
    EXPECT_FALSE(std::filesystem::exists(tiny_.folder() / "metrics.jsonl"));
  };
  refused(4, "memory=64MiB;held=65336KiB", {},
          {"[memory.budget] the run needs", "on PTX executor, which has 205 kB free of 67.1 MB"});
  refused(2, "held=1048376KiB", {"memory.budget=\"auto\""},
          {"[memory.budget] the program needs", "184 kB are allowed"});
  refused(2, "", {"memory.budget=\"100kB\""}, {"[memory.budget]"});
  refused(2, "", {"debug.reference_kernels=true"}, {"debug.reference_kernels", "device.kind"});
  refused(4, "arch=75", {}, {"compute capability 7.5"});
  {
    const fixtures::Environment none("STRATA_TWIN", "");
    std::vector<std::string> words = command("run", {});
    words.emplace_back("--ranks");
    words.emplace_back("2");
    EXPECT_EQ(Process(words, output_).wait(), 2) << output();
    expect_output({"[device.kind] found cuda for 2 ranks, expected one"});
  }
}

// Killed at random moments.
TEST_F(GpuError, ResumesWithTheSameBitsHoweverOftenItIsKilled) {
  const fixtures::Environment twin("STRATA_TWIN", "");
  const double begin = monotonic_seconds();
  ASSERT_EQ(run("whole"), 0) << output();
  const double whole = monotonic_seconds() - begin;
  int hits = 0;
  for (uint64_t draw = 0; hits < 3 && draw < 20; ++draw) {
    Process process(command("killed", {}), output_);
    const double share = 0.2 + 0.6 * philox({23, 2}, draw)[0] * 0x1p-32;
    std::this_thread::sleep_for(std::chrono::duration<double>(share * whole));
    process.send(SIGKILL);
    const int code = process.wait();
    if (code == 0) std::filesystem::remove_all(tiny_.folder("killed"));
    hits += code == -SIGKILL ? 1 : 0;
  }
  EXPECT_EQ(hits, 3);
  ASSERT_EQ(run("killed", "seed=9"), 0) << output();
  expect_same("killed", "whole", 6);
}

// The processor's evaluation of the exported model is that of the run.
TEST_F(GpuError, ExportsAModelThatTheProcessorReads) {
  ASSERT_EQ(
      run("run", "",
          {"eval.set=[{name=\"held\", path=[\"" + tiny_.path("train.bin").string() + "\"], max_tokens=513}]",
           "eval.interval=\"6 steps\"", "data.pack=\"stream\""}),
      0)
      << output();
  auto ids = tiny_tokens(6000);
  const double loss = values("run", "eval/held/loss").at(0);
  ids.resize(513);
  put_tokens(tiny_.path("held.bin"), ids);
  Process process({"eval", "--model", (tiny_.folder() / "final").string(), "--tokens",
                   tiny_.path("held.bin").string(), "--sequence-length", "8", "--json"},
                  output_);
  ASSERT_EQ(process.wait(), 0) << output();
  EXPECT_NEAR(parse_json<nlohmann::json>(output()).at("loss").get<double>(), loss, 2e-5 * loss);
}

}  // namespace
}  // namespace strata::training
