#include "comm/world.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "comm/mpi_module.h"

namespace strata::comm {
namespace {

class SingleProcess final : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void abort(int code) override { std::exit(code); }
};

// Ranks that the launcher says it started; 1 without one.
int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* size = std::getenv(name);
    if (size != nullptr && std::atoi(size) > 1) return std::atoi(size);
  }
  return 1;
}

// Beside the program, in a build as in an installation.
Path module_path() {
  std::error_code error;
  const Path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "lib/strata" / kMpiModule;
}

}  // namespace

std::unique_ptr<World> single_process_world() {
  return std::make_unique<SingleProcess>();
}

std::unique_ptr<World> world_of_launcher() {
  const int ranks = launched_ranks();
  if (ranks == 1) return single_process_world();
  const Path path = module_path();
  // OpenMPI's own plug-ins look for its symbols in the whole process. Never unloaded: MPI keeps threads.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    throw WorldError(
        "[mpi] a launcher started {} ranks, and {} cannot be loaded ({}); install libopenmpi-dev and build "
        "again, "
        "or start the program without mpirun",
        ranks, path.string(), ::dlerror());
  }
  const auto make = reinterpret_cast<MakeMpiWorld>(::dlsym(module, kMakeMpiWorld));
  if (make == nullptr) throw WorldError("[{}] is no MPI module of this program", path.string());
  return std::unique_ptr<World>(make());
}

}  // namespace strata::comm
