// A folder of a test's own, removed with all in it at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace strata {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "strata-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::filesystem::filesystem_error("mkdtemp", name, {});
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const Path& path() const { return path_; }
  Path operator/(const std::string& name) const { return path_ / name; }

 private:
  Path path_;
};

// A file with this content, for tests that do not write through a FileSystem.
inline void put_file(const Path& path, const std::string& content) {
  auto file = posix_file_system().open_for_writing(path);
  file->append(content);
  file->close();
}

}  // namespace strata
