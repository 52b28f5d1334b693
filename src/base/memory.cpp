#include "base/memory.h"

#include <sys/sysinfo.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace strata {

int64_t available_memory() {
  std::ifstream kernel("/proc/meminfo");
  for (std::string line; std::getline(kernel, line);)
    if (line.starts_with("MemAvailable:")) return std::strtoll(line.c_str() + 13, nullptr, 10) * 1024;
  struct sysinfo info = {};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.freeram) * info.mem_unit : 0;
}

}  // namespace strata
