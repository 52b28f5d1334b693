#include "base/control_group.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

#include "base/kernel_files.h"

namespace strata {
namespace {

// Version 1 writes "no limit" as the largest multiple of a page.
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 2;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::optional<int64_t> count_of(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> first_count(const Path& path) {
  const auto words = words_of(kernel_file(path));
  return words.empty() ? std::nullopt : count_of(words[0]);
}

// A limit in bytes; empty for "max", version 1's largest number and anything that is not a limit.
std::optional<int64_t> limit_of(const Path& path) {
  const auto bytes = first_count(path);
  return bytes && *bytes >= 0 && *bytes < kUnlimited ? bytes : std::nullopt;
}

// The sum of these lines of a memory.stat.
int64_t stat_of(const Path& path, std::initializer_list<std::string_view> names) {
  const auto words = words_of(kernel_file(path));
  int64_t bytes = 0;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    if (std::find(names.begin(), names.end(), words[i]) != names.end())
      bytes += std::max<int64_t>(0, count_of(words[i + 1]).value_or(0));
  }
  return bytes;
}

// The groups of a hierarchy from its root down to `own`, a path like "/a/b" from /proc/self/cgroup. Parts of
// a path that the mount does not show are missing folders, and a path above a namespace's root begins with
// "..".
std::vector<Path> groups_of(const Path& mount, const std::string& own) {
  std::vector<Path> groups{mount};
  for (const Path& part : Path(own).relative_path()) {
    if (part == "..") break;
    if (!part.empty() && part != ".") groups.push_back(groups.back() / part);
  }
  return groups;
}

// The groups that this process is in, from each hierarchy's root down.
struct Hierarchies {
  std::vector<Path> cpu1, memory1, all2;
};

Hierarchies hierarchies_of(const Path& root) {
  const Path mounts = root / "sys/fs/cgroup";
  std::string own_cpu, own_memory, own2;
  std::istringstream lines(kernel_file(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    // "ID:CONTROLLERS:PATH"; version 2 names no controllers.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") own2 = path;
    if (controllers.find(",cpu,") != std::string::npos) own_cpu = path;
    if (controllers.find(",memory,") != std::string::npos) own_memory = path;
  }
  Hierarchies found;
  const auto add = [](std::vector<Path>& to, const std::vector<Path>& groups) {
    to.insert(to.end(), groups.begin(), groups.end());
  };
  // A hybrid machine mounts version 2 next to the controllers of version 1.
  for (const Path& mount : {mounts, mounts / "unified"}) add(found.all2, groups_of(mount, own2));
  for (const char* name : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
    std::error_code error;
    if (!std::filesystem::is_directory(mounts / name, error)) continue;
    add(found.cpu1, groups_of(mounts / name, own_cpu));
    break;  // the others are links to it
  }
  add(found.memory1, groups_of(mounts / "memory", own_memory));
  return found;
}

void add_quota(ControlGroupLimits& limits, std::optional<int64_t> quota, std::optional<int64_t> period,
               const Path& source) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  const double processors = static_cast<double>(*quota) / static_cast<double>(*period);
  if (!limits.cpu || processors < limits.cpu->processors) limits.cpu = {processors, source};
}

// One group's limit; `used` of it is taken, and the kernel can drop `cached` of that.
void add_memory(ControlGroupLimits& limits, int64_t bytes, int64_t used, int64_t cached, const Path& source,
                std::optional<int64_t> swap, std::optional<int64_t> together) {
  if (!limits.memory || bytes < limits.memory->bytes) limits.memory = {bytes, source};
  const int64_t taken = std::max<int64_t>(0, used - cached);
  const int64_t left = std::max<int64_t>(0, bytes - taken);
  if (!limits.available || left < limits.available->bytes) limits.available = {left, source};
  limits.headrooms.push_back({left, swap, together});
}

std::optional<int64_t> left_of(std::optional<int64_t> limit, std::optional<int64_t> used) {
  if (!limit) return std::nullopt;
  return std::max<int64_t>(0, *limit - used.value_or(0));
}

void add_version_2(ControlGroupLimits& limits, const Path& group) {
  const auto quota = words_of(kernel_file(group / "cpu.max"));
  if (!quota.empty()) {
    // The period may be left out.
    add_quota(limits, count_of(quota[0]), quota.size() > 1 ? count_of(quota[1]) : 100'000, group / "cpu.max");
  }
  // Above memory.high the kernel slows a group down until it has given memory back.
  for (const char* name : {"memory.max", "memory.high"}) {
    const auto bytes = limit_of(group / name);
    if (!bytes) continue;
    add_memory(limits, *bytes, first_count(group / "memory.current").value_or(0),
               stat_of(group / "memory.stat", {"active_file", "inactive_file"}), group / name,
               left_of(limit_of(group / "memory.swap.max"), first_count(group / "memory.swap.current")),
               std::nullopt);
  }
}

void add_version_1(ControlGroupLimits& limits, const Path& group) {
  const auto bytes = limit_of(group / "memory.limit_in_bytes");
  if (!bytes) return;
  const int64_t cached = stat_of(group / "memory.stat", {"total_active_file", "total_inactive_file"});
  auto together = left_of(limit_of(group / "memory.memsw.limit_in_bytes"),
                          first_count(group / "memory.memsw.usage_in_bytes"));
  if (together) *together += cached;
  add_memory(limits, *bytes, first_count(group / "memory.usage_in_bytes").value_or(0), cached,
             group / "memory.limit_in_bytes", std::nullopt, together);
}

}  // namespace

int CpuQuota::threads() const {
  constexpr double kMost = 1 << 20;
  return static_cast<int>(std::clamp(std::ceil(processors - 1e-9), 1.0, kMost));
}

std::optional<int64_t> ControlGroupLimits::holdable(int64_t swap_free) const {
  std::optional<int64_t> least;
  for (const Headroom& headroom : headrooms) {
    int64_t bytes = headroom.memory + std::min(swap_free, headroom.swap.value_or(swap_free));
    bytes = std::min(bytes, headroom.together.value_or(bytes));
    least = std::min(least.value_or(bytes), bytes);
  }
  return least;
}

ControlGroupLimits read_control_groups(const Path& root) {
  ControlGroupLimits limits;
  const Hierarchies found = hierarchies_of(root);
  for (const Path& group : found.all2) add_version_2(limits, group);
  for (const Path& group : found.memory1) add_version_1(limits, group);
  for (const Path& group : found.cpu1) {
    add_quota(limits, first_count(group / "cpu.cfs_quota_us"), first_count(group / "cpu.cfs_period_us"),
              group / "cpu.cfs_quota_us");
  }
  return limits;
}

const std::optional<CpuQuota>& cpu_quota() {
  static const std::optional<CpuQuota> quota = read_control_groups().cpu;
  return quota;
}

}  // namespace strata
