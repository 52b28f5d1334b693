// Controls the twin of NVIDIA's driver from a test in the same process. Programs are controlled by the environment
// variable STRATA_TWIN, whose text (settings.h) the twin reads at cuInit.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace strata::gpu_tests {

class Twin {
 public:
  // Throws std::runtime_error if libcuda.so.1 is not the twin.
  Twin() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr || dlsym(library_, "strata_twin") == nullptr)
      throw std::runtime_error(
          "libcuda.so.1 is not the twin: set LD_LIBRARY_PATH to its folder, as ctest does");
  }

  // The twin as if the process had just started: every handle and address is invalid. Throws std::invalid_argument for
  // settings that it does not know. `settings` hold until the next call; the environment is not read.
  void restart(const std::string& settings = "") const {
    const char* error = find<const char*(const char*)>("strata_twin_restart")(settings.c_str());
    if (error != nullptr) throw std::invalid_argument(error);
  }
  // The same with the environment's settings, which are read again at every cuInit.
  void follow_environment() const { find<const char*(const char*)>("strata_twin_restart")(nullptr); }
  // The first fault since the restart; empty if there was none.
  std::string violation() const { return find<const char*()>("strata_twin_violation")(); }
  // Settings fail, fault, drop and edit that had no effect yet, joined by semicolons.
  std::string unused() const { return find<const char*()>("strata_twin_unused")(); }
  // Calls of this name (without _v2) since the restart.
  uint64_t calls(const std::string& name) const {
    return find<uint64_t(const char*)>("strata_twin_calls")(name.c_str());
  }
  // What kernels moved since the restart, with the setting traffic, as CSV (ptx/traffic.h).
  std::string traffic() const { return find<const char*()>("strata_twin_traffic")(); }

 private:
  template <typename F>
  F* find(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  void* library_;
};

}  // namespace strata::gpu_tests
