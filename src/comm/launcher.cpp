#include "comm/launcher.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace strata::comm {
namespace {

using Environment = std::function<const char*(const char*)>;

std::optional<int> number(const Environment& variable, const char* name) {
  const char* text = variable(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int value = -1;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < 0) {
    throw ConfigError("[launcher] {} is '{}': expected a number. Unset it, or start with mpirun or srun",
                      name, view);
  }
  return value;
}

std::optional<LaunchedRank> rank_from(const Environment& variable, const char* launcher,
                                      const char* rank_name, const char* size_name) {
  const auto rank = number(variable, rank_name), size = number(variable, size_name);
  if (!size) return std::nullopt;
  if (!rank) {
    throw ConfigError("[launcher] {} is {}, but {} is not set. Unset the first, or start with mpirun or srun",
                      size_name, *size, rank_name);
  }
  if (*rank >= *size) {
    throw ConfigError("[launcher] {} is {}: expected a rank below {} = {}", rank_name, *rank, size_name,
                      *size);
  }
  return LaunchedRank{.rank = *rank, .size = *size, .launcher = launcher};
}

}  // namespace

std::optional<LaunchedRank> launched_rank(const Environment& variable) {
  auto open_mpi = rank_from(variable, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  auto pmi = rank_from(variable, "PMI", "PMI_RANK", "PMI_SIZE");
  if (open_mpi && pmi && (open_mpi->rank != pmi->rank || open_mpi->size != pmi->size)) {
    throw ConfigError(
        "[launcher] OMPI_COMM_WORLD_* have rank {} of {}, PMI_* have rank {} of {}: one mpirun was started inside "
        "another. Start only one",
        open_mpi->rank, open_mpi->size, pmi->rank, pmi->size);
  }
  if (open_mpi) return open_mpi;
  if (pmi) return pmi;
  // Last, because under mpirun Slurm's variables are those of mpirun's daemons.
  auto slurm = rank_from(variable, "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  const auto pmix = number(variable, "PMIX_RANK");
  if (slurm && pmix && *pmix != slurm->rank) {
    throw ConfigError(
        "[launcher] SLURM_PROCID is {} and PMIX_RANK is {}: srun was started inside another launcher's "
        "job. Start only one",
        slurm->rank, *pmix);
  }
  if (pmix && !slurm) {
    throw ConfigError(
        "[launcher] PMIX_RANK is {}, but neither OMPI_COMM_WORLD_SIZE nor SLURM_STEP_NUM_TASKS is set: "
        "expected the number of ranks in one of them. Start with mpirun or srun",
        *pmix);
  }
  return slurm;
}

}  // namespace strata::comm
