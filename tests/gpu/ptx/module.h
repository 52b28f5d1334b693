// A loaded PTX module: its kernels, and its variables in device memory.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/instruction.h"
#include "ptx/memory.h"

namespace strata::gpu_tests {

class Module {
 public:
  // Throws LoadError with the line. The module must not move: kernels point into it.
  Module(std::string_view text, const std::string& file, Memory& memory);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The kernel with that name, or the only one whose mangled name contains it. Throws std::invalid_argument.
  const Kernel& kernel(std::string_view name) const;
  const std::vector<Kernel>& kernels() const { return kernels_; }
  // The address of a global variable. Throws std::invalid_argument.
  uint64_t address(const std::string& variable) const;
  const std::string& target() const { return target_; }

 private:
  std::vector<std::string> lines_;
  std::vector<Kernel> kernels_;
  std::map<std::string, uint64_t> addresses_;
  std::string target_;
};

}  // namespace strata::gpu_tests
