// Engine `mpi`: processes under mpirun yield the expected bits, and failures of real processes end the job.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "comm/collective_cases.h"

namespace strata::comm {
namespace {

struct Outcome {
  int code = 0;
  std::string text;  // standard output and error of all ranks, and the launcher's
  double seconds = 0;
};

Outcome run_command(const std::string& command) {
  const auto begun = std::chrono::steady_clock::now();
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return outcome;
}

Path binary_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome version = run_command(std::string(STRATA_MPIRUN) + " --version");
    if (version.code != 0) GTEST_SKIP() << "no mpirun: " << STRATA_MPIRUN;
    open_mpi_ = version.text.find("Open MPI") != std::string::npos ||
                version.text.find("OpenRTE") != std::string::npos;
    // mpirun may not work without a network, or in a container.
    const Outcome starts = run_command(fmt::format("{} {} -n 2 true", STRATA_MPIRUN,
                                                   open_mpi_ ? "--oversubscribe --allow-run-as-root" : ""));
    if (starts.code != 0) GTEST_SKIP() << "mpirun cannot start processes here: " << starts.text;
    folder_ = std::filesystem::temp_directory_path() / fmt::format("strata_mpi_test_{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // `timeout` kills a job that hangs: code 124.
  Outcome run(int ranks, const std::string& arguments) const {
    const char* flags =
        open_mpi_ ? "--oversubscribe --allow-run-as-root --mca btl_vader_single_copy_mechanism none" : "";
    return run_command(fmt::format("timeout -k 2 120 {} {} -n {} {} {}", STRATA_MPIRUN, flags, ranks,
                                   (binary_folder() / "comm_mpi_ranks").string(), arguments));
  }

  void expect_cases(int ranks, int64_t chunk, const char* progress) const {
    const Outcome outcome = run(ranks, fmt::format("cases {} {} {}", folder_.string(), chunk, progress));
    ASSERT_EQ(outcome.code, 0) << outcome.text;
    std::vector<std::string> bytes;
    for (int rank = 0; rank < ranks; ++rank) bytes.push_back(read_file(folder_ / std::to_string(rank)));
    std::vector<size_t> at(bytes.size());
    for (const Case& one : collective_cases()) {
      const auto expected = expected_results(one, ranks);
      for (size_t rank = 0; rank < bytes.size(); ++rank) {
        for (const Bytes& part : expected[rank]) {
          const std::string wanted(reinterpret_cast<const char*>(part.data()), part.size());
          EXPECT_TRUE(bytes[rank].compare(at[rank], wanted.size(), wanted) == 0)
              << one.name << ", rank " << rank << " of " << ranks;
          at[rank] += wanted.size();
        }
      }
    }
    for (size_t rank = 0; rank < bytes.size(); ++rank) EXPECT_EQ(at[rank], bytes[rank].size());
  }

  bool open_mpi_ = false;
  Path folder_;
};

// The expected results of engine `local`, so both engines yield the same bits.
TEST_F(Mpi, TwoRanksYieldTheExpectedBits) {
  expect_cases(2, 1 << 20, "inline");
}
TEST_F(Mpi, ThreeRanksYieldThemInSmallChunks) {
  expect_cases(3, 64, "inline");
}
TEST_F(Mpi, FourRanksYieldThemWithAThread) {
  expect_cases(4, 4096, "thread");
}
TEST_F(Mpi, FiveRanksYieldThem) {
  expect_cases(5, 1 << 20, "inline");
}

TEST_F(Mpi, GroupsAndMessagesOfAMeshOverlap) {
  for (const char* progress : {"inline", "thread"}) {
    const Outcome outcome = run(4, fmt::format("scenarios {}", progress));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
  }
}

TEST_F(Mpi, WaitingTakesLittleProcessorTime) {
  const Outcome outcome = run(3, "idle");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
}

void expect_parts(const Outcome& outcome, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(outcome.text.find(part), std::string::npos) << part << "\nin: " << outcome.text;
  }
}

TEST_F(Mpi, AnErrorOfOneRankReachesAllAndSetsTheExitCode) {
  const Outcome outcome = run(3, "failure throw 1");
  EXPECT_EQ(outcome.code, 3) << outcome.text;
  EXPECT_LT(outcome.seconds, 60);
  expect_parts(outcome, {"rank 0: shard 7 is torn", "rank 1: shard 7 is torn", "rank 2: shard 7 is torn"});
}

TEST_F(Mpi, AKilledRankEndsTheJob) {
  const Outcome outcome = run(3, "failure die 1");
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124);
  EXPECT_LT(outcome.seconds, 60);
}

TEST_F(Mpi, AStoppedRankEndsTheJobAndIsNamed) {
  const Outcome outcome = run(3, "failure stop 1");
  EXPECT_EQ(outcome.code, 4) << outcome.text;
  EXPECT_LT(outcome.seconds, 60);
  expect_parts(outcome, {"rank 0: [comm] rank 1 is stopped or gone: ranks 0 and 2 have waited 2.",
                         "Rank 1: does not answer; last known: doing step",
                         "Rank 2: doing step 20; last collective: all-reduce of gradients"});
}

TEST_F(Mpi, ATimeoutNamesCollectiveAndRanks) {
  const Outcome outcome = run(3, "failure hang 2");
  EXPECT_EQ(outcome.code, 4) << outcome.text;
  EXPECT_LT(outcome.seconds, 60);
  expect_parts(outcome,
               {"all-reduce of gradients, number 21 of group 'everyone': ranks 0 and 1 have waited 1.",
                "for rank 2. Rank 2: doing step 20; last collective: all-reduce of gradients"});
}

TEST_F(Mpi, ALostMessageIsReported) {
  const Outcome outcome = run(3, "failure lose 2");
  EXPECT_EQ(outcome.code, 4) << outcome.text;
  EXPECT_LT(outcome.seconds, 60);
  expect_parts(outcome,
               {"all-reduce of gradients, number 21 of group 'everyone': ranks 0 and 1 have waited 1.",
                "for rank 2. Rank 2: doing step 20; last collective: all-reduce of gradients"});
}

TEST_F(Mpi, NoRankWaitsForOneThatEnded) {
  const Outcome outcome = run(2, "failure leave 1");
  EXPECT_EQ(outcome.code, 4) << outcome.text;
  expect_parts(outcome,
               {"all-reduce of gradients, number 21 of group 'everyone': rank 1 has ended without it"});
}

TEST_F(Mpi, MembersThatDisagreeEndTheJob) {
  const Outcome outcome = run(2, "failure differ 1");
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124);
  expect_parts(outcome, {"all-reduce of"});
}

TEST_F(Mpi, RejectsRanksOfTwoLaunchers) {
  const Outcome outcome = run_command(fmt::format(
      "env PMI_RANK=0 PMI_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 {} scenarios inline",
      (binary_folder() / "comm_mpi_ranks").string()));
  EXPECT_EQ(outcome.code, 2);
  expect_parts(outcome, {"OMPI_COMM_WORLD_* have rank 1 of 3, PMI_* have rank 0 of 2"});
}

}  // namespace
}  // namespace strata::comm
