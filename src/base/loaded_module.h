// Parts of the program that it loads only when they are needed, so that others start without their libraries: files in
// lib/strata, next to the program's folder or the shared library.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace strata {

// Where the file of this name is; if it is nowhere, where it belongs.
Path module_path(std::string_view name);

struct LoadedModule {
  void* handle = nullptr;  // never unloaded; nullptr: it cannot be loaded
  Path path;
  std::string error;  // the loader's

  // nullptr if it has no such symbol.
  void* symbol(const char* name) const;
};
// `global`: libraries that the module loads itself find its symbols.
LoadedModule load_module(std::string_view name, bool global = false);

}  // namespace strata
