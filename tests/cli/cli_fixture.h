// The built program, run in a folder of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/file.h"

namespace strata {

struct Outcome {
  int code = -1;
  std::string out, err;
};

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("strata_cli_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  // Runs `strata ARGUMENTS` in the test's folder; arguments as a shell reads them, `launcher` before them.
  Outcome run(const std::string& arguments, const std::string& launcher = "") {
    const std::string command =
        "cd '" + folder_.string() + "' && " + launcher + " '" STRATA_PROGRAM "' " + arguments + " >out 2>err";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder_ / "out"),
            read_file(folder_ / "err")};
  }

  Path folder_;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace strata
