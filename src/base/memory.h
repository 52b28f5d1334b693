// The memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace strata {

// Bytes that programs can still take without others being pushed out, as the kernel reckons, or fewer if a
// control group (control_group.h) has less left. `root`: the folder in place of "/", for tests.
int64_t available_memory(const Path& root = "/");

// Like available_memory(), plus memory that the kernel can still swap out: the upper limit of what can be
// held. 0: not known.
int64_t holdable_memory(const Path& root = "/");

// What ends it, for messages: "on this machine", or "under the limit in /sys/fs/cgroup/memory.max".
std::string where_memory_ends(const Path& root = "/");

}  // namespace strata
