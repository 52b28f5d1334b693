#include "library/run_training.h"

#include <cstdlib>

#include "base/error.h"
#include "base/kernel_files.h"
#include "base/log.h"
#include "base/signals.h"
#include "comm/launcher.h"
#include "train/launched.h"

namespace strata::library {
namespace {

// Checks how the ranks were started against the configuration.
void check_ranks(int64_t threads, int processes, config::Auto<config::Backend> backend) {
  using config::Backend;
  constexpr int64_t kMostThreads = 1024;
  if (threads > kMostThreads) {
    throw ConfigError(
        "[--ranks] found {}, expected at most {} threads of one process; start more with mpirun", threads,
        kMostThreads);
  }
  if (threads > 1 && processes > 1) {
    throw ConfigError(
        "[--ranks] found {}, but a launcher started {} processes; give --ranks, which makes threads of one "
        "process, or start processes, not both",
        threads, processes);
  }
  if (backend == Backend::kMpi && processes == 1)
    throw ConfigError(
        "[parallel.backend] found \"mpi\", but no launcher started this process; start it with mpirun -n N");
  if (backend == Backend::kLocal && processes > 1) {
    throw ConfigError(
        "[parallel.backend] found \"local\", but a launcher started {} processes; leave it at \"auto\", or "
        "start one process with --ranks {}",
        processes, processes);
  }
}

// Ends the job with this process's error. Printed once: by the rank that failed first, or found another one
// lost.
[[noreturn]] void end_job(comm::World& world, int code, const std::string& message) {
  set_stop_text("");  // the launcher ends the others by a signal; the error message suffices
  comm::fail_once(world, code, message);
  if (world.failed_rank() == world.rank()) log_end(fmt::format("rank {}: {}", world.rank(), message));
  world.abort(code);
  std::abort();  // the compiler does not see that a virtual function never returns
}

[[noreturn]] void end_job(comm::World& world, const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  end_job(world, exit_code(known != nullptr ? known->kind() : ErrorKind::kInternal), error.what());
}

using ReadRun = std::function<training::RunOptions()>;
using Stop = std::function<bool()>;

// Runs as one of several processes that a launcher started.
training::TrainResult train_as_process(comm::World& world, const ReadRun& read, int64_t threads,
                                       const Stop& stop) {
  try {
    training::RunOptions run = read();
    check_ranks(threads, world.size(), run.config.parallel.backend);
    run.failed = [&world](const std::exception& error) { end_job(world, error); };
    training::TrainResult made = training::train_run(world, run, stop);
    made.rank = world.rank();
    return made;
  } catch (const Interrupted&) {
    end_job(world, stop_exit_code(), "stopped before the first step");
  } catch (const std::exception& error) {
    end_job(world, error);
  }
}

// Only one of many ranks reports a stop, or missing files of the kernel. Slurm leaves ranks half a minute.
void prepare_reports() {
  const auto launched = comm::launched_rank([](const char* name) { return std::getenv(name); });
  // strata launch restarts the run by itself.
  if (training::launch_attempt([](const char* name) { return std::getenv(name); })) set_stop_text("");
  if (!launched || launched->rank == 0) {
    for (const std::string& warning : missing_kernel_files()) log_warning("{}", warning);
  }
  if (!launched || launched->size == 1) return;
  if (launched->rank > 0) set_stop_text("");
  if (launched->launcher != "Slurm") expect_force();
}

}  // namespace

training::TrainResult train_on_ranks(const ReadRun& read, int64_t threads, const Stop& stop) {
  prepare_reports();
  // Before the configuration is read: all ranks must learn of its errors.
  const auto world = comm::world_of_launcher();
  if (world->size() > 1) return train_as_process(*world, read, threads, stop);
  const training::RunOptions run = read();
  check_ranks(threads, 1, run.config.parallel.backend);
  return training::train_on_threads(run, static_cast<int>(threads), stop);
}

}  // namespace strata::library
