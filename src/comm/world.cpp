#include "comm/world.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/kernel_files.h"
#include "comm/launcher.h"
#include "comm/mpi_module.h"

namespace strata::comm {
namespace {

// The file that holds this code: the program, or the shared library.
Path own_file() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_file), &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

// Relative to the program or the shared library, in a build and in an installation.
Path module_path() {
  std::error_code error;
  const Path folder = program_path().parent_path().parent_path() / "lib/strata";
  const Path library = own_file().parent_path();
  for (const Path& candidate : {folder, library / "strata", library.parent_path() / "strata"})
    if (std::filesystem::exists(candidate / kMpiModule, error)) return candidate / kMpiModule;
  return folder / kMpiModule;
}

}  // namespace

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
  const Path path = module_path();
  // RTLD_GLOBAL, because Open MPI's plug-ins look up its symbols in the process. Never unloaded: MPI has
  // threads.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    throw WorldError(
        "[mpi] {} started {} ranks, but {} cannot be loaded ({}). Install libopenmpi-dev and rebuild, or "
        "start the program without a launcher",
        launched->launcher, launched->size, path.string(), ::dlerror());
  }
  const auto make = reinterpret_cast<MakeMpiWorld>(::dlsym(module, kMakeMpiWorld));
  if (make == nullptr) throw WorldError("[{}] is not an MPI module of this program", path.string());
  return std::unique_ptr<World>(make(launched->rank, launched->size));
}

}  // namespace strata::comm
