// The limits that Linux control groups (versions 1 and 2) set for this process: CPU quotas and memory.
// Containers, batch systems and systemd set them. The tightest limit applies among the process's own group,
// as /proc/self/cgroup names it, all its parents, and the root of each hierarchy, which in a container may be
// the only visible group. Files that are missing or unreadable, or that do not hold a limit, count as no
// limit: reading limits must not end a program.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/file.h"

namespace strata {

struct CpuQuota {
  double processors = 0;  // time of this many processors, 1.5 for instance
  Path source;            // the file that holds it
  // Threads that can use the whole quota: rounded up, since rounding down would leave part of it unused.
  int threads() const;
};

struct MemoryLimit {
  int64_t bytes = 0;
  Path source;
  friend bool operator==(const MemoryLimit&, const MemoryLimit&) = default;
};

struct ControlGroupLimits {
  std::optional<CpuQuota> cpu;        // the lowest quota; empty: none is set
  std::optional<MemoryLimit> memory;  // the lowest limit
  // Bytes that can still be taken before some group reaches its limit, cached files that the kernel can drop
  // included, with the file of that limit: a parent may be nearer to its limit than this group is.
  std::optional<MemoryLimit> available;

  // For each group with a limit: bytes left of memory and of swap space (empty: no limit), and of both if
  // version 1 limits their sum.
  struct Headroom {
    int64_t memory = 0;
    std::optional<int64_t> swap, together;
  };
  std::vector<Headroom> headrooms;
  // As `available`, with what may be swapped out where the machine has `swap_free` bytes for it.
  std::optional<int64_t> holdable(int64_t swap_free) const;
};

// Reads the limits as they are now. `root`: the folder in place of "/", for tests.
ControlGroupLimits read_control_groups(const Path& root = "/");

// The CPU quota as it was when first asked for: a run decides its threads once.
const std::optional<CpuQuota>& cpu_quota();

}  // namespace strata
