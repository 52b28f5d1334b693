// The programs that start ranks, mpirun or srun: which one there is, and its command line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata::launch {

enum class LauncherKind {
  kOpenMpi,
  kHydra,  // of MPICH and Intel MPI
  kSlurm,
};

struct Launcher {
  LauncherKind kind = LauncherKind::kOpenMpi;
  Path program;
};

// A host and the number of ranks that it takes.
struct HostSlots {
  std::string name;
  int64_t slots = 1;
  bool operator==(const HostSlots&) const = default;
};

// The machine as the choice of a launcher sees it, for tests.
struct LauncherSearch {
  std::function<const char*(const char*)> variable;
  std::function<std::optional<Path>(const std::string&)> find_program;
  std::function<std::string(const Path&)> version;  // the output of PROGRAM --version
};
LauncherSearch search_of_this_machine();

// srun in a Slurm job that has it, else mpirun, else mpiexec. ConfigError if there is none, or if it is of an
// unknown kind.
Launcher find_launcher(const LauncherSearch& search);
// By the text that --version prints; nullopt: unknown.
std::optional<LauncherKind> kind_of_version(std::string_view text);

struct Start {
  int64_t ranks = 1;
  std::vector<HostSlots> hosts;  // empty: this host, or those of the Slurm job
  int64_t attempt = 1;           // for the ranks: STRATA_LAUNCH_ATTEMPT
  bool is_root = false;          // Open MPI refuses to run as root without an option
  // Open MPI otherwise waits for two seconds before it ends the other ranks of one that died, which have nothing to save.
  bool ends_at_once = true;
  std::vector<std::string> of_rank;  // the command of each rank
};
// The command with its arguments. The environment must contain STRATA_LAUNCH_ATTEMPT too.
std::vector<std::string> start_command(const Launcher& launcher, const Start& start);

// The command that runs another one on a host, as this launcher starts ranks there: ssh and its options, for
// instance. `host` and the command are appended. ConfigError if the program is not there.
std::vector<std::string> remote_agent(const Launcher& launcher, const LauncherSearch& search, double seconds);

}  // namespace strata::launch
