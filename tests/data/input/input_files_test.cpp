#include "data/input/input_files.h"

#include <gtest/gtest.h>

#include "data/input/arrow_support.h"
#include "data/input/read_records.h"
#include "fixtures/compressed.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

TEST(ListInputs, FilesFoldersAndGlobsEachOnce) {
  const TemporaryFolder folder;
  folder.write("b/two.html", "<p>x");
  folder.write("b/one.jsonl", "{}\n");
  folder.write("b/.hidden", "x");
  folder.write("b/three.jsonl.part", "x");
  const Path zipped = folder.write("a.jsonl.gz", gzip("{}\n"));
  const std::string base = folder.path().string();
  const auto files = list_inputs({base + "/b", base + "/a.*", base + "/b/one.jsonl", "-"});
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].path, base + "/b/one.jsonl");
  EXPECT_EQ(files[0].format, RecordFormat::kJsonl);
  EXPECT_EQ(files[0].size, 3);
  EXPECT_TRUE(files[0].splittable);
  EXPECT_EQ(files[1].format, RecordFormat::kHtml);
  EXPECT_EQ(files[2].path, zipped);
  EXPECT_FALSE(files[2].splittable);
  EXPECT_EQ(files[3].path, kStandardInput);
  EXPECT_EQ(list_inputs({base + "/b"}, RecordFormat::kText)[1].format, RecordFormat::kText);
  expect_error(ErrorKind::kConfig, {"none*"}, [&] { list_inputs({base + "/none*"}); });
}

// Several consecutive streams, and damage reported at its position.
TEST(Compression, BzipXzAndLz4AreReadLikeGzip) {
  const TemporaryFolder folder;
  const std::string one = "{\"text\":\"one\"}\n", two = "{\"text\":\"two\"}\n";
  std::string much;
  for (int i = 0; i < 30000; ++i) much += "{\"text\":\"" + std::to_string(i * i) + "\"}\n";
  for (const auto& [ending, pack] : {std::pair<const char*, std::string (*)(std::string_view)>{".bz2", bzip2},
                                     {".xz", xz},
                                     {".lz4", lz4}}) {
    const auto records = read_records(folder.write("a.jsonl" + std::string(ending), pack(one) + pack(two)));
    ASSERT_EQ(records.size(), 2u) << ending;
    EXPECT_EQ(records[1].document.text, "two");
    EXPECT_EQ(read_records(folder.write("plain", pack("some words")))[0].document.text, "some words")
        << ending;
    EXPECT_EQ(read_records(folder.write("much.jsonl", pack(much))).size(), 30000u) << ending;
    EXPECT_EQ(read_records(folder.write("none.jsonl", pack(""))).size(), 0u) << ending;
    const std::string packed = pack(much);
    const auto cut = read_records(folder.write("cut.jsonl", packed.substr(0, packed.size() / 2)));
    EXPECT_EQ(cut.back().status, ReadStatus::kDamaged) << ending;
    EXPECT_NE(cut.back().detail.find("ends in the middle"), std::string::npos) << cut.back().detail;
    std::string flipped = packed;
    flipped[packed.size() / 2] = static_cast<char>(~flipped[packed.size() / 2]);
    EXPECT_EQ(read_records(folder.write("bad.jsonl", flipped)).back().status, ReadStatus::kDamaged) << ending;
  }
}

TEST(TextReader, RejectsBinaryFiles) {
  const TemporaryFolder folder;
  for (const std::string& content : {std::string("MZ\0\1", 4), std::string("a\0b\0", 4),
                                     std::string("\xFE\xFF\0a", 4), std::string("%PDF-1.7 text")}) {
    const auto records = read_records(folder.write("a.txt", content));
    EXPECT_EQ(records[0].status, ReadStatus::kNotText) << records[0].detail;
    EXPECT_NE(records[0].detail, "");
  }
  EXPECT_EQ(read_records(folder.write("a.txt", std::string(9000, 'a') + '\0'))[0].status,
            ReadStatus::kDocument);
}

TEST(ListInputs, FormatsHaveNames) {
  for (const auto format : {RecordFormat::kAuto, RecordFormat::kJsonl, RecordFormat::kText,
                            RecordFormat::kCsv, RecordFormat::kTsv, RecordFormat::kParquet,
                            RecordFormat::kArrow, RecordFormat::kWarc, RecordFormat::kHtml})
    EXPECT_EQ(parse_format(format_name(format)), format);
  expect_error(ErrorKind::kConfig, {"\"xml\"", "jsonl"}, [] { parse_format("xml"); });
}

TEST(ObjectStorage, UrisThroughArrow) {
  const TemporaryFolder folder;
  folder.write("a/one.jsonl", "{\"text\":\"one\"}\n");
  folder.write("a/b/two.jsonl.gz", gzip("{\"text\":\"two\"}\n"));
  const std::string uri = "file://" + folder.path().string();
  if (!has_arrow()) {
    expect_error(ErrorKind::kConfig, {uri, "make arrow"}, [&] { list_inputs({uri}); });
    return;
  }
  const auto files = list_inputs({uri});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1].path.string(), uri + "/a/one.jsonl");
  EXPECT_EQ(files[1].size, 15);
  EXPECT_EQ(read_records(files[0].path)[0].document.text, "two");
  EXPECT_EQ(read_records(files[1].path)[0].document.text, "one");
  EXPECT_EQ(list_inputs({uri + "/a/one.jsonl"}).size(), 1u);
  expect_error(ErrorKind::kConfig, {"missing"}, [&] { list_inputs({uri + "/missing"}); });
  expect_error(ErrorKind::kConfig, {"nowhere://x"}, [&] { list_inputs({"nowhere://x"}); });
}

}  // namespace
}  // namespace strata::data
