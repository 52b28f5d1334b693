// Truncated and damaged record files, external sorting and mapped arrays.
#include <fstream>

#include "base/error.h"
#include "data/dedup/corpus.h"
#include "data/dedup/external_sort.h"
#include "data/dedup/record_file.h"

namespace strata::data::dedup {
namespace {

std::string content(const Path& path) {
  return read_file(path);
}

void decide(const CorpusStage& stage, const std::vector<Path>& records, const Path& scratch) {
  StageStats stats;
  std::filesystem::create_directories(scratch);
  stage.decide({records, scratch, int64_t{1} << 20, &posix_file_system()}, stats,
               [](uint32_t, std::span<const Decision>) {});
}

TEST(Records, DamageIsADataErrorForEveryKind) {
  std::vector<std::string> texts;
  Numbers numbers(1);
  for (int i = 0; i < 12; ++i)
    texts.push_back(random_words(numbers, 30, 300) + "\n" + random_words(numbers, 20, 300));
  texts[7] = texts[2];
  for (const StageKind& kind : dedup_stage_kinds()) {
    SCOPED_TRACE(kind.name);
    const auto stage = make_stage(kind.name);
    const ScratchFolder folder;
    StageStats stats;
    const auto records = collect_records(*stage, texts, {texts.size()}, folder.path(), stats);
    const std::string whole = content(records[0]);
    EXPECT_NO_THROW(decide(*stage, records, folder / "scratch"));
    for (size_t size = 0; size < whole.size(); size += 1 + size / 16) {
      put_file(records[0], whole.substr(0, size));
      EXPECT_THROW(decide(*stage, records, folder / "scratch"), DataError) << size;
    }
    put_file(records[0], whole + "x");
    EXPECT_THROW(decide(*stage, records, folder / "scratch"), DataError);
    for (size_t at = 0; at < whole.size(); at += 1 + at / 32) {
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ (1 << numbers.below(8)));
      put_file(records[0], altered);
      EXPECT_THROW(decide(*stage, records, folder / "scratch"), DataError) << at;
    }
  }
}

TEST(Records, OfOtherParametersAreRejected) {
  const ScratchFolder folder;
  StageStats stats;
  const auto records = collect_records(*make_stage("minhash"), {"a b c d e f"}, {1}, folder.path(), stats);
  EXPECT_THROW(decide(*make_stage("minhash", {{"seed", int64_t{2}}}), records, folder / "scratch"),
               DataError);
  EXPECT_THROW(decide(*make_stage("exact_dedup"), records, folder / "scratch"), DataError);
}

TEST(Records, WithoutFinishNothingIsWritten) {
  const ScratchFolder folder;
  {
    const auto stage = make_stage("minhash");
    const auto collector = stage->collect(posix_file_system(), folder / "record");
    TextView view;
    std::string text = "a b c d e f g";
    view.reset(text);
    StageStats stats;
    collector->add(view, Document{}, stats);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

struct Pair {
  uint64_t key, value;
  bool operator<(const Pair& other) const { return key != other.key ? key < other.key : value < other.value; }
  bool operator==(const Pair&) const = default;
};
struct HashedPair : Pair {
  uint64_t leading() const { return key; }
};

template <typename T>
void expect_sorted(size_t count, int64_t memory, uint32_t keys) {
  const ScratchFolder folder;
  ExternalSorter<T> sorter({&posix_file_system(), folder.path(), memory}, "s");
  Numbers numbers(count);
  std::vector<T> records;
  for (size_t i = 0; i < count; ++i) {
    records.push_back(T{uint64_t{numbers.below(keys)} << 40, i});
    sorter.add(records.back());
  }
  std::sort(records.begin(), records.end());
  size_t at = 0;
  sorter.drain([&](const T& record) {
    ASSERT_LT(at, records.size());
    ASSERT_EQ(record, records[at]);
    ++at;
  });
  EXPECT_EQ(at, count);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ExternalSorter, SortsInMemoryAndBeyond) {
  for (const size_t count : {0u, 1u, 255u, 256u, 257u, 5000u, 50000u}) {
    for (const int64_t memory : {int64_t{0}, int64_t{100000}, int64_t{1} << 30}) {
      expect_sorted<Pair>(count, memory, 1000);
      expect_sorted<HashedPair>(count, memory, 1 << 24);
      expect_sorted<HashedPair>(count, memory, 1);
    }
  }
}

TEST(ScratchArray, InMemoryAndMapped) {
  for (const int64_t memory : {int64_t{0}, int64_t{1} << 20}) {
    const ScratchFolder folder;
    ScratchArray<uint64_t> array({&posix_file_system(), folder.path(), memory}, "a", 3000);
    for (uint64_t i = 0; i < 3000; ++i) {
      ASSERT_EQ(array[i], 0u);
      array[i] = i * i;
    }
    for (uint64_t i = 0; i < 3000; ++i) ASSERT_EQ(array[i], i * i);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace strata::data::dedup
