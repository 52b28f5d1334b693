#include "train/memory_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"

namespace strata::training {
namespace {

constexpr const char* kMemory = "/dev/shm";
constexpr mode_t kOnlyOwner = 0700, kPermissions = 0777;

// Why it is not this user's own folder; "" if it is; nullopt if nothing is there. Follows no link.
std::optional<std::string> problem_of(const Path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return std::nullopt;
  if (!S_ISDIR(info.st_mode)) return "is not a folder";
  if (info.st_uid != ::geteuid()) return fmt::format("belongs to user {}", info.st_uid);
  if ((info.st_mode & kPermissions) != kOnlyOwner)
    return fmt::format("has the permissions {:o}", info.st_mode & kPermissions);
  return "";
}

// Whether it is there.
bool require_own(const Path& folder) {
  const auto problem = problem_of(folder);
  if (problem && !problem->empty()) {
    throw ConfigError("[{}] {}: expected a folder that only user {} may enter (700). Remove it",
                      folder.string(), *problem, ::geteuid());
  }
  return problem.has_value();
}

}  // namespace

Path memory_folder(const Path& run) {
  std::string path = std::filesystem::weakly_canonical(std::filesystem::absolute(run)).string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return Path(kMemory) / fmt::format("strata-{}-{}", ::geteuid(), to_hex(hash64(path)));
}

Path open_memory_folder(const Path& run) {
  Path folder = memory_folder(run);
  const int error = ::mkdir(folder.c_str(), kOnlyOwner) == 0 ? 0 : errno;
  if (!require_own(folder)) {
    throw ConfigError(
        "[{}] cannot create the folder: {}; expected {} to be a file system in memory that user {} may write",
        folder.string(), std::strerror(error), kMemory, ::geteuid());
  }
  return folder;
}

std::optional<Path> find_memory_folder(const Path& run) {
  Path folder = memory_folder(run);
  if (!require_own(folder)) return std::nullopt;
  return folder;
}

bool is_own_memory_folder(const Path& run) {
  return problem_of(memory_folder(run)) == "";
}

int64_t memory_folder_bytes(const Path& run) {
  std::error_code none;
  uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(memory_folder(run), none)) {
    const uintmax_t size = entry.file_size(none);
    if (!none) bytes += size;
  }
  return static_cast<int64_t>(bytes);
}

void remove_memory_folder(const Path& run) {
  if (!is_own_memory_folder(run)) return;
  // A rank that ends at the same time may remove the same files.
  std::error_code ignored;
  std::filesystem::remove_all(memory_folder(run), ignored);
}

}  // namespace strata::training
