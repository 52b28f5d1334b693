// Defaults when files of /proc and /sys cannot be read, in a made-up root.
#include "base/kernel_files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/memory.h"
#include "fixtures/scratch_folder.h"

namespace strata {
namespace {

class KernelFiles : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& content) {
    const Path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }

  ScratchFolder root_;
};

TEST_F(KernelFiles, UnreadableFilesAreEmpty) {
  put("file", "text\n");
  EXPECT_EQ(kernel_file(root_ / "file"), "text\n");
  EXPECT_EQ(kernel_file(root_ / "missing"), "");
  EXPECT_EQ(kernel_file(root_.path()), "") << "a folder";
}

TEST_F(KernelFiles, ProgramIsFoundWithoutProc) {
  const Path program = program_path();
  EXPECT_TRUE(std::filesystem::is_regular_file(program)) << program;
  EXPECT_TRUE(std::filesystem::equivalent(program_path(root_.path()), program));
}

TEST_F(KernelFiles, EachMissingKindHasOneWarning) {
  EXPECT_EQ(missing_kernel_files(root_.path()).size(), 4u);
  put("proc/meminfo", "");
  put("proc/self/statm", "");
  EXPECT_EQ(missing_kernel_files(root_.path()).size(), 2u);
  put("sys/devices/system/cpu/online", "");
  ASSERT_EQ(missing_kernel_files(root_.path()).size(), 1u);
  EXPECT_NE(missing_kernel_files(root_.path())[0].find("/sys/fs/cgroup"), std::string::npos);
  std::filesystem::create_directories(root_ / "sys/fs");
  EXPECT_TRUE(missing_kernel_files(root_.path()).empty()) << "a kernel without control groups";
}

TEST_F(KernelFiles, AvailableMemoryIsKnownWithoutProc) {
  EXPECT_GT(available_memory(root_.path()), int64_t{1} << 20);
  EXPECT_GT(holdable_memory(root_.path()), int64_t{1} << 20);
  EXPECT_EQ(where_memory_ends(root_.path()), "on this machine");
}

}  // namespace
}  // namespace strata
