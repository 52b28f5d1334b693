// A run's folder in this host's memory, /dev/shm/strata-UID-HASH: its files outlive the run's processes, but
// not the host.
#pragma once

#include <cstdint>
#include <optional>

#include "base/file.h"

namespace strata::training {

// Its path, whether it exists or not; the same for every path to the run's folder.
Path memory_folder(const Path& run);

// Creates it for this user only, or takes the existing one. ConfigError if it cannot be created, or if the
// existing one is a link, is another user's or may be entered by others.
Path open_memory_folder(const Path& run);

// The existing one; nullopt if there is none. ConfigError as in open_memory_folder().
std::optional<Path> find_memory_folder(const Path& run);

// Whether there is one that open_memory_folder() would accept.
bool is_own_memory_folder(const Path& run);

// Bytes of the files in it; 0 if there is none.
int64_t memory_folder_bytes(const Path& run);

// Removes it with its files; absent is fine. What open_memory_folder() would refuse stays.
void remove_memory_folder(const Path& run);

}  // namespace strata::training
