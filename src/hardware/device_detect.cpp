#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/control_group.h"
#include "base/parallel.h"
#include "hardware/device_spec.h"

namespace strata::hardware {
namespace {

// The value of the first "key : value" line of /proc/cpuinfo, empty when there is none.
std::string cpuinfo_value(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// Files of the kernel do not report their size, so they are read to the end. Empty if the file is missing.
std::string kernel_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "32K", "1024K", "36M" as in sysfs; 0 where the file is missing.
int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    try {
      if (std::stoi(kernel_file(folder + "level")) != level) continue;
      if (kernel_file(folder + "type").rfind("Instruction", 0) == 0) continue;
      const std::string size = kernel_file(folder + "size");
      size_t digits = 0;
      const int64_t number = std::stoll(size, &digits);
      const char unit = digits < size.size() ? size[digits] : ' ';
      return number * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1);
    } catch (const std::exception&) {
      break;  // no such cache described here
    }
  }
  return 0;
}

// The machine's memory, or less if a control group limits this process.
int64_t memory_bytes() {
  const int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const auto limit = read_control_groups().memory;
  return limit ? std::min(bytes, limit->bytes) : bytes;
}

}  // namespace

DeviceSpec detect_cpu(int threads) {
  std::string text;
  try {
    text = read_file("/proc/cpuinfo");
  } catch (const std::exception&) {
    text.clear();  // a system without it: the name stays unknown
  }
  std::istringstream words(cpuinfo_value(text, "flags"));
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  auto has = [&](const char* flag) { return flags.count(flag) > 0; };

  DeviceSpec spec;
  spec.name = cpuinfo_value(text, "model name");
  // A virtual machine may hide the model's name; family and model still distinguish processors.
  const std::string family = cpuinfo_value(text, "cpu family");
  if (!family.empty()) {
    spec.name += fmt::format(" (family {} model {} stepping {})", family, cpuinfo_value(text, "model\t"),
                             cpuinfo_value(text, "stepping"));
  }
  if (spec.name.empty()) spec.name = "unknown processor";
  spec.isa.avx2 = has("avx2") && has("fma");
  spec.isa.avx512 =
      has("avx512f") && has("avx512bw") && has("avx512cd") && has("avx512dq") && has("avx512vl");
  spec.isa.avx512_bf16 = spec.isa.avx512 && has("avx512_bf16");
  spec.isa.amx = has("amx_tile") && has("amx_bf16");
#if defined(__aarch64__)
  spec.isa.neon = true;
#endif
  if (const char* const limit = std::getenv(kIsaLimitVariable)) spec.isa = limited_to(spec.isa, limit);
  spec.cores = available_processors();
  spec.threads = threads;
  spec.l1_bytes = cache_bytes(1);
  spec.l2_bytes = cache_bytes(2);
  spec.l3_bytes = cache_bytes(3);
  spec.memory_bytes = memory_bytes();
  return spec;
}

}  // namespace strata::hardware
