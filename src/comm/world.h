// The processes that work together: how many there are, which one this is, and waiting for each other.
#pragma once

#include <memory>

namespace strata::comm {

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;  // from 0
  virtual int size() const = 0;
  // Returns when every rank has come here. What ranks wrote into a shared folder before is visible after.
  virtual void barrier() = 0;
  // Ends all ranks, those that wait for this one too; the launcher's exit code is `code`.
  [[noreturn]] virtual void abort(int code) = 0;
};

// This process alone.
std::unique_ptr<World> single_process_world();

// The ranks that mpirun (or another launcher of OpenMPI's) started, else this process alone. MPI is a library
// of its own, loaded only then, so that others start without it. WorldError where a launcher started several
// ranks and this build has no MPI, saying what to install.
std::unique_ptr<World> world_of_launcher();

}  // namespace strata::comm
