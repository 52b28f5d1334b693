// A folder of its own for one test, removed at its end, and helpers that write small files into it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace strata::data {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "strata-data-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Path operator/(const std::string& name) const { return path_ / name; }
  const Path& path() const { return path_; }

  Path write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary).write(content.data(), static_cast<int64_t>(content.size()));
    return path_ / name;
  }
  template <typename T>
  Path write_values(const std::string& name, const std::vector<T>& values) const {
    return write(name, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }

 private:
  Path path_;
};

// Runs `action`, which must throw an Error of this kind whose message has all these parts.
inline void expect_error(ErrorKind kind, const std::vector<std::string>& parts,
                         const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" is missing in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "no error was thrown";
}

}  // namespace strata::data
