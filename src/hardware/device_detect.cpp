#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/control_group.h"
#include "base/kernel_files.h"
#include "base/parallel.h"
#include "hardware/cpuid.h"
#include "hardware/device_spec.h"

namespace strata::hardware {
namespace {

// "32K", "1024K", "36M" as in sysfs; without it, the processor's own answer, or `usual`.
int64_t cache_bytes(const Path& root, int level, int64_t usual) {
  for (int index = 0; index < 8; ++index) {
    const Path folder = root / fmt::format("sys/devices/system/cpu/cpu0/cache/index{}", index);
    try {
      if (std::stoi(kernel_file(folder / "level")) != level) continue;
      if (kernel_file(folder / "type").starts_with("Instruction")) continue;
      const std::string size = kernel_file(folder / "size");
      size_t digits = 0;
      const int64_t number = std::stoll(size, &digits);
      const char unit = digits < size.size() ? size[digits] : ' ';
      return number * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1);
    } catch (const std::exception&) {
      break;  // no such cache described here
    }
  }
  const int64_t bytes = cpuid_cache_bytes(level);
  return bytes > 0 ? bytes : usual;
}

// The machine's memory, or less if a control group limits this process.
int64_t memory_bytes(const Path& root) {
  const int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const auto limit = read_control_groups(root).memory;
  return limit ? std::min(bytes, limit->bytes) : bytes;
}

}  // namespace

DeviceSpec detect_cpu(int threads, const Path& root) {
  DeviceSpec spec;
  spec.name = cpuid_name();
  if (spec.name.empty()) spec.name = "unknown processor";
  spec.isa = cpuid_isa();
#if defined(__aarch64__)
  spec.isa.neon = true;
#endif
  if (const char* const limit = std::getenv(kIsaLimitVariable)) spec.isa = limited_to(spec.isa, limit);
  spec.cores = available_processors();
  spec.threads = threads;
  spec.l1_bytes = cache_bytes(root, 1, 32 << 10);
  spec.l2_bytes = cache_bytes(root, 2, 1 << 20);
  spec.l3_bytes = cache_bytes(root, 3, 0);
  spec.memory_bytes = memory_bytes(root);
  return spec;
}

}  // namespace strata::hardware
