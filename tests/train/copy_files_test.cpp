#include "train/copy_files.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "fixtures/child_process.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"
#include "train/copy_plan.h"

namespace strata::training {
namespace {

// Two values whose bytes depend on the step.
std::string bytes_of(int64_t step) {
  std::string bytes(100, '\0');
  std::iota(bytes.begin(), bytes.end(), static_cast<char>(step));
  return bytes;
}

CopyManifest manifest_of(int64_t step, int64_t rank = 0) {
  const std::string bytes = bytes_of(step);
  return {.origin = {.program = "strata 1", .run = "0123", .layout = "4567", .ranks = 2},
          .rank = rank,
          .step = step,
          .state = "{\"text\": \"of \\u00e4 state\"}\n",
          .values = {{"first", 40, hash64(bytes.data(), 40)}, {"second", 60, hash64(bytes.data() + 40, 60)}}};
}

void put(CopySlots& slots, int64_t step, int64_t keep = -1) {
  const std::string bytes = bytes_of(step);
  slots.begin(std::ssize(bytes), keep);
  slots.write(0, bytes.data(), 40);
  slots.write(40, bytes.data() + 40, 60);
  slots.commit(step, to_json(manifest_of(step, slots.rank())));
}

using Steps = std::vector<int64_t>;

TEST(CopyFiles, TwoCopiesAlternate) {
  const ScratchFolder folder;
  CopySlots slots(posix_file_system(), folder.path(), 1);
  EXPECT_EQ(slots.steps(), Steps{});
  for (int64_t step = 1; step <= 5; ++step) put(slots, step);
  EXPECT_EQ(slots.steps(), (Steps{5, 4}));
  put(slots, 6, 4);  // the only one that all ranks have
  EXPECT_EQ(slots.steps(), (Steps{6, 4}));
  EXPECT_EQ(CopySlots(posix_file_system(), folder.path(), 1).steps(), (Steps{6, 4}));
  EXPECT_EQ(CopySlots(posix_file_system(), folder.path(), 0).steps(), Steps{});
  for (const int64_t step : {4, 6}) EXPECT_EQ(damage_of(slots.find(step)), std::nullopt) << step;
  const auto found = list_copies(folder.path());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(to_json(*slots.find(6).content), to_json(manifest_of(6, 1)));
  slots.drop_after(4);
  EXPECT_EQ(slots.steps(), Steps{4});
  EXPECT_EQ(list_copies(folder.path()).size(), 1u);
}

TEST(CopyFiles, OnlyListedOnesAreKept) {
  const ScratchFolder folder;
  CopySlots one(posix_file_system(), folder.path(), 0), other(posix_file_system(), folder.path(), 123456);
  put(one, 3);
  put(one, 4);
  put(other, 4);
  put_file(folder / "copy-00000-1.json.tmp-77", "{");
  put_file(folder / "rank-0.board", "another's");
  const FoundCopy kept[] = {other.find(4)};
  remove_copies(posix_file_system(), folder.path(), kept);
  const auto found = list_copies(folder.path());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 123456);
  EXPECT_EQ(damage_of(found[0]), std::nullopt);
  EXPECT_TRUE(has_copies(folder.path()));
  remove_copies(posix_file_system(), folder.path());
  EXPECT_FALSE(has_copies(folder.path()));
  EXPECT_TRUE(std::filesystem::exists(folder / "rank-0.board"));
}

TEST(CopyFiles, EveryFlippedBitIsFound) {
  const ScratchFolder folder;
  CopySlots slots(posix_file_system(), folder.path(), 0);
  put(slots, 9);
  const FoundCopy whole = slots.find(9);
  const auto flipped = [](std::string text, size_t bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    return text;
  };
  const std::string data = read_file(whole.data), manifest = read_file(whole.manifest);
  for (size_t bit = 0; bit < 8 * data.size(); bit += 3) {
    put_file(whole.data, flipped(data, bit));
    EXPECT_EQ(damage_of(whole), bit / 8 < 40 ? "first" : "second") << bit;
  }
  put_file(whole.data, data);
  for (size_t bit = 0; bit < 8 * manifest.size(); ++bit)
    EXPECT_THROW(copy_manifest_from_json(flipped(manifest, bit), "test"), DataError) << bit;
  put_file(whole.manifest, flipped(manifest, 800));
  EXPECT_EQ(damage_of(list_copies(folder.path()).at(0)), "manifest");
}

TEST(CopyFiles, CutAndMissingFilesAreFound) {
  const ScratchFolder folder;
  CopySlots slots(posix_file_system(), folder.path(), 0);
  put(slots, 9);
  const FoundCopy whole = slots.find(9);
  const std::string manifest = read_file(whole.manifest);
  for (size_t size = 0; size < manifest.size(); size += 7) {
    put_file(whole.manifest, manifest.substr(0, size));
    EXPECT_EQ(list_copies(folder.path())[0].content, std::nullopt) << size;
  }
  put_file(whole.manifest, manifest);
  posix_file_system().truncate(whole.data, 99);
  EXPECT_EQ(damage_of(whole), "second");
  posix_file_system().remove(whole.data);
  EXPECT_EQ(damage_of(whole), "first");
}

// Killed before and after each call that writes: the older copy stays whole, and the newer one is whole or absent.
TEST(CopyFiles, DeathAtAnyCallLeavesTheOlderCopy) {
  const ScratchFolder folder;
  const auto write = [&](FaultPlan plan) {
    std::filesystem::remove_all(folder / "x");
    std::filesystem::create_directory(folder / "x");
    CopySlots before(posix_file_system(), folder / "x", 0);
    put(before, 1);
    put(before, 2);
    FaultyFileSystem files(plan);
    CopySlots slots(files, folder / "x", 0);
    put(slots, 3, 2);
    return files.calls();
  };
  const int64_t calls = write({});
  ASSERT_GE(calls, 8);
  for (const FaultKind kind : {FaultKind::kKillBefore, FaultKind::kKillAfter}) {
    for (int64_t at = 1; at <= calls; ++at) {
      EXPECT_EQ(exit_code_of_child([&] { write({.kind = kind, .at = at}); }), FaultyFileSystem::kKilled);
      const CopySlots slots(posix_file_system(), folder / "x", 0);
      EXPECT_TRUE(slots.has(2)) << at;
      for (const int64_t step : slots.steps()) EXPECT_EQ(damage_of(slots.find(step)), std::nullopt) << at;
    }
  }
  for (int64_t at = 1; at <= calls; ++at) {
    bool is_written = false;
    try {
      write({.kind = FaultKind::kDiskFull, .at = at});
      is_written = true;  // the calls from here on need no space
    } catch (const WorldError&) {
    }
    const CopySlots slots(posix_file_system(), folder / "x", 0);
    EXPECT_EQ(damage_of(slots.find(2)), std::nullopt) << at;
    EXPECT_EQ(slots.has(3), is_written) << at;
  }
}

TEST(CopyPlan, PartnersAreOnTheNextHost) {
  EXPECT_EQ(partners_on_hosts({0, 0, 0}), std::vector<int>{});
  EXPECT_EQ(partners_on_hosts({0, 1}), (std::vector<int>{1, 0}));
  EXPECT_EQ(partners_on_hosts({0, 0, 2, 2}), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(partners_on_hosts({0, 1, 0, 1, 4}), (std::vector<int>{1, 4, 3, 4, 0}));
  EXPECT_EQ(partners_on_hosts({0, 0, 0, 3}), (std::vector<int>{3, 3, 3, 0}));
}

}  // namespace
}  // namespace strata::training
