#include "comm/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace strata::comm {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<LaunchedRank> with(const Variables& variables) {
  return launched_rank([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refused(const Variables& variables) {
  try {
    with(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Launcher, IsDetectedByItsVariables) {
  EXPECT_EQ(with({}), std::nullopt);
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
            (LaunchedRank{1, 4, "Open MPI"}));
  EXPECT_EQ(with({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}), (LaunchedRank{3, 4, "PMI"}));
  EXPECT_EQ(with({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"PMIX_RANK", "2"}}),
            (LaunchedRank{2, 3, "Slurm"}));
}

// A batch script has SLURM_NTASKS and SLURM_PROCID=0; srun starts one daemon of mpirun per node.
TEST(Launcher, DetectsMpirunInsideABatchJob) {
  EXPECT_EQ(with({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}), std::nullopt);
  EXPECT_EQ(with({{"SLURM_NTASKS", "8"},
                  {"SLURM_PROCID", "0"},
                  {"SLURM_STEP_NUM_TASKS", "2"},
                  {"OMPI_COMM_WORLD_RANK", "5"},
                  {"OMPI_COMM_WORLD_SIZE", "8"},
                  {"PMIX_RANK", "5"}}),
            (LaunchedRank{5, 8, "Open MPI"}));
}

TEST(Launcher, RejectsInconsistentVariables) {
  const auto expect = [](const Variables& variables, const std::string& part) {
    EXPECT_NE(refused(variables).find(part), std::string::npos) << part << "\nin: " << refused(variables);
  };
  expect({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
         "inside another");
  expect({{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_RANK is not set");
  expect({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
         "expected a rank below OMPI_COMM_WORLD_SIZE = 2");
  expect({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}, "PMI_RANK is 'x'");
  expect({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}, "PMI_RANK is '-1'");
  expect({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"PMIX_RANK", "1"}}, "PMIX_RANK is 1");
  expect({{"PMIX_RANK", "1"}}, "the number of ranks");
}

}  // namespace
}  // namespace strata::comm
