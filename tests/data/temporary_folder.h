// A test's own folder with helpers that write small files into it, and the check of an error.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "support/scratch_folder.h"

namespace strata::data {

class TemporaryFolder : public ScratchFolder {
 public:
  Path write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary)
        .write(content.data(), static_cast<int64_t>(content.size()));
    return path() / name;
  }
  template <typename T>
  Path write_values(const std::string& name, const std::vector<T>& values) const {
    return write(name, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
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
