#include "comm/world.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/loaded_module.h"
#include "comm/launcher.h"
#include "comm/mpi_module.h"

namespace strata::comm {

Topology among(const Topology& all, std::span<const int> members) {
  Topology topology;
  if (all.domain_of.empty()) return topology;
  for (const int rank : members) topology.domain_of.push_back(all.domain_of[static_cast<size_t>(rank)]);
  return topology;
}

void fail_once(World& world, int code, std::string_view message) {
  for (int i = 0; i < 20 && world.rank() > 0 && world.failed_rank() < 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  // If another rank has failed already, this returns when buffers may be freed.
  world.fail(code, message);
}

std::unique_ptr<World> world_of_launcher() {
  const auto launched = launched_rank([](const char* name) { return std::getenv(name); });
  if (!launched || launched->size == 1) return single_process_world();
  // Open MPI's plug-ins look up its symbols in the process.
  const LoadedModule module = load_module(kMpiModule, true);
  if (module.handle == nullptr) {
    throw WorldError(
        "[mpi] {} started {} ranks, but {} cannot be loaded ({}). Install libopenmpi-dev and rebuild, or "
        "start the program without a launcher",
        launched->launcher, launched->size, module.path.string(), module.error);
  }
  const auto make = reinterpret_cast<MakeMpiWorld>(module.symbol(kMakeMpiWorld));
  if (make == nullptr) throw WorldError("[{}] is not an MPI module of this program", module.path.string());
  return std::unique_ptr<World>(make(launched->rank, launched->size));
}

}  // namespace strata::comm
