#include "base/memory.h"

#include <sys/sysinfo.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

namespace {

// The sum of these lines of /proc/meminfo, in bytes; nothing where it cannot be read.
std::optional<int64_t> kernel_counts(std::initializer_list<std::string_view> names) {
  std::ifstream kernel("/proc/meminfo");
  std::optional<int64_t> bytes;
  for (std::string line; std::getline(kernel, line);) {
    for (const std::string_view name : names) {
      if (!line.starts_with(name)) continue;
      bytes = bytes.value_or(0) + std::strtoll(line.c_str() + name.size(), nullptr, 10) * 1024;
    }
  }
  return bytes;
}

}  // namespace

int64_t available_memory() {
  if (const auto bytes = kernel_counts({"MemAvailable:"})) return *bytes;
  struct sysinfo info = {};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.freeram) * info.mem_unit : 0;
}

int64_t holdable_memory() {
  return kernel_counts({"MemAvailable:", "SwapFree:"}).value_or(available_memory());
}

}  // namespace strata
