#include "base/memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/control_group.h"

namespace strata {

namespace {

// This line of meminfo, in bytes; nothing if it cannot be read.
std::optional<int64_t> kernel_count(const Path& root, std::string_view name) {
  std::ifstream kernel(root / "proc/meminfo");
  for (std::string line; std::getline(kernel, line);) {
    if (line.starts_with(name)) return std::strtoll(line.c_str() + name.size(), nullptr, 10) * 1024;
  }
  return std::nullopt;
}

int64_t of_machine(const Path& root) {
  if (const auto bytes = kernel_count(root, "MemAvailable:")) return *bytes;
  // Without /proc: cached files are not included.
  struct sysinfo info = {};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.freeram + info.bufferram) * info.mem_unit : 0;
}

}  // namespace

int64_t available_memory(const Path& root) {
  const int64_t bytes = of_machine(root);
  const auto limit = read_control_groups(root).available;
  return limit ? std::min(bytes, limit->bytes) : bytes;
}

int64_t holdable_memory(const Path& root) {
  const int64_t swap = kernel_count(root, "SwapFree:").value_or(0);
  const int64_t bytes = of_machine(root) + swap;
  const auto limit = read_control_groups(root).holdable(swap);
  // 0 is reserved for an unknown amount.
  return limit ? std::max<int64_t>(1, std::min(bytes, *limit)) : bytes;
}

std::string where_memory_ends(const Path& root) {
  const auto limit = read_control_groups(root).available;
  return limit && limit->bytes < of_machine(root) ? "under the limit in " + limit->source.string()
                                                  : "on this machine";
}

}  // namespace strata
