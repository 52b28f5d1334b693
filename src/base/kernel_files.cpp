#include "base/kernel_files.h"

#include <sys/auxv.h>

#include <fstream>
#include <iterator>

namespace strata {
namespace {

bool present(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

std::string kernel_file(const Path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Path program_path(const Path& root) {
  std::error_code error;
  Path path = std::filesystem::read_symlink(root / "proc/self/exe", error);
  if (!path.empty()) return path;
  // As it was executed: relative to the current directory, which this program does not change.
  const auto* const executed = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return executed == nullptr ? Path() : std::filesystem::absolute(executed, error);
}

std::vector<std::string> missing_kernel_files(const Path& root) {
  std::vector<std::string> warnings;
  if (!present(root / "proc/meminfo"))
    warnings.push_back("[/proc/meminfo] cannot be read: cached files do not count as available memory");
  if (!present(root / "proc/self/statm"))
    warnings.push_back(
        "[/proc/self/statm] cannot be read: reports show the peak memory of this process, not the current");
  // A kernel without control groups lacks only their files.
  if (!present(root / "proc/self") || !present(root / "sys/fs")) {
    warnings.push_back(
        "[/proc/self/cgroup, /sys/fs/cgroup] cannot be read: limits of the container are not known; set "
        "OMP_NUM_THREADS and memory.budget if it has any");
  }
  if (!present(root / "sys/devices/system/cpu"))
    warnings.push_back("[/sys/devices/system/cpu] cannot be read: cache sizes come from the processor");
  return warnings;
}

}  // namespace strata
