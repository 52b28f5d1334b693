#include "train/memory_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "fixtures/scratch_folder.h"
#include "train/launched.h"

namespace strata::training {
namespace {

mode_t mode_of(const Path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

std::string refusal_of(const Path& run) {
  try {
    open_memory_folder(run);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryFolder, EachPathToARunHasTheSame) {
  const ScratchFolder scratch;
  const Path run = scratch / "run";
  const Path folder = memory_folder(run);
  EXPECT_EQ(folder.parent_path(), "/dev/shm");
  EXPECT_EQ(folder.filename().string().rfind("strata-" + std::to_string(::geteuid()) + "-", 0), 0U);
  EXPECT_EQ(memory_folder(scratch.path() / "x" / ".." / "run" / ""), folder);
  std::filesystem::create_directories(run);
  std::filesystem::create_directory_symlink(run, scratch / "link");
  EXPECT_EQ(memory_folder(scratch / "link"), folder);
  EXPECT_EQ(memory_folder(std::filesystem::relative(run)), folder);
  EXPECT_NE(memory_folder(scratch / "run2"), folder);
}

TEST(MemoryFolder, IsForItsUserOnlyAndIsRemovedWithItsFiles) {
  const ScratchFolder scratch;
  const Path run = scratch / "run";
  EXPECT_EQ(find_memory_folder(run), std::nullopt);
  remove_memory_folder(run);
  const Path folder = open_memory_folder(run);
  EXPECT_EQ(mode_of(folder), 0700U);
  put_file(folder / "file", "text");
  EXPECT_EQ(open_memory_folder(run), folder);  // keeps the files
  EXPECT_EQ(find_memory_folder(run), folder);
  EXPECT_EQ(read_file(folder / "file"), "text");
  remove_memory_folder(run);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

// Anyone may create names in /dev/shm.
TEST(MemoryFolder, OthersFoldersAndLinksAreRefused) {
  const ScratchFolder scratch;
  const Path run = scratch / "run";
  const Path folder = open_memory_folder(run);
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  EXPECT_NE(refusal_of(run).find("has the permissions 755"), std::string::npos) << refusal_of(run);
  remove_memory_folder(run);
  EXPECT_TRUE(std::filesystem::exists(folder));
  std::filesystem::remove(folder);

  put_file(folder, "a file");
  EXPECT_NE(refusal_of(run).find("is not a folder"), std::string::npos) << refusal_of(run);
  std::filesystem::remove(folder);

  std::filesystem::create_directories(scratch / "target");
  std::filesystem::create_directory_symlink(scratch / "target", folder);
  EXPECT_NE(refusal_of(run).find("is not a folder"), std::string::npos) << refusal_of(run);
  EXPECT_THROW(find_memory_folder(run), ConfigError);
  put_file(scratch.path() / "target" / "file", "text");
  remove_memory_folder(run);
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "target" / "file"));
  std::filesystem::remove(folder);

  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  open_memory_folder(run);
  ASSERT_EQ(::chown(folder.c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal_of(run).find("belongs to user 12345"), std::string::npos) << refusal_of(run);
  std::filesystem::remove(folder);
}

TEST(Launched, AttemptsAreCountedFromOne) {
  const auto of = [](const char* value) {
    return launch_attempt([&](const char* name) { return name == std::string(kLaunchAttempt) ? value : ""; });
  };
  EXPECT_EQ(of(nullptr), std::nullopt);
  EXPECT_EQ(of("1"), 1);
  EXPECT_EQ(of("12"), 12);
  for (const char* wrong : {"", "0", "-1", "2x", "99999999999"})
    EXPECT_THROW(of(wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace strata::training
