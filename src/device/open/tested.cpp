#include "device/open/tested.h"

#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "hardware/device_spec.h"

namespace strata::device {
namespace {

std::string prefix() {
  return "tested-" + std::string(program_version()) + "-";
}

}  // namespace

Path tested_path(const Device& gpu) {
  const Path measured = hardware::device_cache_path(gpu.spec());
  return measured.parent_path() / (prefix() + measured.filename().string());
}

bool is_tested(const Device& gpu) {
  std::error_code error;
  return std::filesystem::exists(tested_path(gpu), error);
}

bool any_is_tested() {
  const Path folder = hardware::device_cache_path(hardware::DeviceSpec{}).parent_path();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(prefix())) return true;
  return false;
}

bool record_tested(FileSystem& files, const Device& gpu) {
  const Path path = tested_path(gpu);
  try {
    files.create_directories(path.parent_path());
    write_file_atomically(files, path, hardware::to_json(gpu.spec()));
    return true;
  } catch (const Error& problem) {
    log_warning("the result of the self-test was not saved: {}", problem.what());
    return false;
  }
}

}  // namespace strata::device
