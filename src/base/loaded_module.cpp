#include "base/loaded_module.h"

#include <dlfcn.h>

#include "base/kernel_files.h"

namespace strata {
namespace {

// The file that holds this code: the program, or the shared library.
Path own_file() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_file), &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

}  // namespace

Path module_path(std::string_view name) {
  std::error_code error;
  const Path folder = program_path().parent_path().parent_path() / "lib/strata";
  const Path library = own_file().parent_path();
  for (const Path& candidate : {folder, library / "strata", library.parent_path() / "strata"})
    if (std::filesystem::exists(candidate / name, error)) return candidate / name;
  return folder / name;
}

LoadedModule load_module(std::string_view name, bool global) {
  LoadedModule module;
  module.path = module_path(name);
  module.handle = ::dlopen(module.path.c_str(), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (module.handle == nullptr) module.error = ::dlerror();
  return module;
}

void* LoadedModule::symbol(const char* name) const {
  return handle == nullptr ? nullptr : ::dlsym(handle, name);
}

}  // namespace strata
