#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <future>

#include "base/error.h"
#include "base/file_name.h"
#include "fixtures/temporary_folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using data::expect_error;

TEST(FileLock, DoesNotFollowLinks) {
  const data::TemporaryFolder folder;
  const Path mine = folder.write("mine", "not to be emptied");
  fs::create_symlink(mine, folder / ".lock");
  expect_error(ErrorKind::kConfig, {".lock", "symbolic link"},
               [&] { const FileLock lock(folder / ".lock"); });
  EXPECT_EQ(read_file(mine), "not to be emptied");
}

// Links within a folder are followed, so that a folder of shards can be assembled from links.
TEST(ExpandGlob, LinksOutOfAFolderAreNotFollowed) {
  const data::TemporaryFolder folder;
  folder.write("in/a.txt", "a");
  folder.write("in/deep/b.txt", "b");
  const Path outside = folder.write("out/c.txt", "c");
  fs::create_symlink(outside, folder / "in/file");
  fs::create_directory_symlink(folder / "out", folder / "in/folder");
  fs::create_directory_symlink(folder / "in", folder / "in/round");
  fs::create_symlink("deep/b.txt", folder / "in/inside");
  fs::create_symlink("nowhere", folder / "in/broken");
  const auto names = [&](const std::string& pattern) {
    std::string all;
    for (const Path& path : expand_glob(pattern))
      all += path.lexically_relative(folder.path()).string() + " ";
    return all;
  };
  const std::string base = folder.path().string();
  EXPECT_EQ(names(base + "/in"), "in/a.txt in/deep/b.txt in/inside ");
  EXPECT_EQ(names(base + "/in/**/*.txt"), "in/a.txt in/deep/b.txt ");
  EXPECT_EQ(names(base + "/in/file"), "in/file ");  // a file that is named exactly is included
}

// Replacing it like a file would remove a device from /dev.
TEST(WriteFileAtomically, WritesToPipesAndDevices) {
  const data::TemporaryFolder folder;
  const Path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto read = std::async(std::launch::async, [&] { return read_file(pipe); });
  write_file_atomically(posix_file_system(), pipe, "content");
  EXPECT_EQ(read.get(), "content");
  EXPECT_TRUE(fs::is_fifo(pipe));
  expect_error(ErrorKind::kWorld, {"/dev/full"},
               [] { write_file_atomically(posix_file_system(), "/dev/full", "content"); });
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(FileName, AcceptsOnlySafeNames) {
  for (const std::string name : {"web", "a b", "größe-1.5_x", "CON"})
    EXPECT_EQ(file_name_error(name), "") << name;
  for (const std::string name : {"", ".", "..", ".hidden", "../x", "/", "a/b", "a\\b", "a\nb", "a\x7f"})
    EXPECT_NE(file_name_error(name), "") << name;
  EXPECT_NE(file_name_error(std::string(300, 'x')), "");
  EXPECT_NE(file_name_error(std::string("a\0b", 3)), "");
}

}  // namespace
}  // namespace strata
