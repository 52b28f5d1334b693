// Reads this process's rank from the environment that a launcher set.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace strata::comm {

struct LaunchedRank {
  int rank = 0, size = 1;
  std::string launcher;  // the launcher that set the variables
  bool operator==(const LaunchedRank&) const = default;
};

// From the first of these that is set: Open MPI (OMPI_COMM_WORLD_RANK, …_SIZE), MPICH and others by PMI
// (PMI_RANK, PMI_SIZE), Slurm's srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS; PMIX_RANK is the same rank). None
// of them: no launcher. SLURM_NTASKS is ignored: a batch job sets it, in which mpirun then starts ranks.
// ConfigError if values are not numbers, a rank is not below its size, a size has no rank, or two launchers
// set different ranks or sizes.
std::optional<LaunchedRank> launched_rank(const std::function<const char*(const char*)>& variable);

}  // namespace strata::comm
