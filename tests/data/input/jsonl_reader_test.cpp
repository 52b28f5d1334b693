#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "data/input/read_records.h"
#include "fixtures/compressed.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

std::string line_of(const std::string& text) {
  return "{\"text\":\"" + text + "\"}\n";
}

TEST(JsonlReader, FieldsAreKeptByteForByteInOrder) {
  const TemporaryFolder folder;
  const Path path = folder.write(
      "a.jsonl", R"({ "z" : [1, 2,  3] ,"body":"t", "b\u0061" : {"x": 1.50} , "key":"k","n":1e5 })");
  RecordOptions options;
  options.text = "body";
  options.id = "key";
  const auto records = read_records(path, options);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].document.fields, R"("z" : [1, 2,  3],"b\u0061" : {"x": 1.50},"n":1e5)");
  EXPECT_EQ(records[0].document.id, "k");
  EXPECT_EQ(records[0].document.text, "t");
}

TEST(JsonlReader, EveryPartitionYieldsEachRecordOnce) {
  const TemporaryFolder folder;
  std::string content = "\xEF\xBB\xBF";
  for (int i = 0; i < 9; ++i) {
    content += line_of("t" + std::to_string(i));
    if (i == 3) content += "\n\r\n";
    if (i == 5) content += "not json\n";
  }
  content.pop_back();  // no newline at the end
  const Path path = folder.write("a.jsonl", content);
  const auto whole = read_records(path);
  ASSERT_EQ(whole.size(), 10u);
  const auto size = static_cast<int64_t>(content.size());
  LineIndex lines(path);
  for (int64_t first = 0; first <= size; ++first) {
    for (int64_t second = first; second <= size; second += 5) {
      std::vector<ReadRecord> parts;
      for (const FileRange& range : {FileRange{0, first}, FileRange{first, second}, FileRange{second, -1}}) {
        const auto reader = open_records(path, "a.jsonl", {}, range, first % 2 == 0 ? &lines : nullptr);
        for (auto& record : read_records(*reader)) parts.push_back(std::move(record));
      }
      ASSERT_EQ(parts.size(), whole.size()) << first << " " << second;
      for (size_t i = 0; i < parts.size(); ++i) {
        ASSERT_EQ(parts[i].document.text, whole[i].document.text);
        ASSERT_EQ(parts[i].document.id, whole[i].document.id);
        ASSERT_EQ(parts[i].document.line, whole[i].document.line);
      }
    }
  }
}

TEST(JsonlReader, ALineOfAHundredMegabytes) {
  const TemporaryFolder folder;
  std::string text;
  text.resize(100'000'000, 'x');
  const Path path = folder.write("a.jsonl", line_of("before") + line_of(text) + line_of("after"));
  const auto records = read_records(path);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_TRUE(records[1].document.text == text);
  EXPECT_EQ(records[2].document.text, "after");
  EXPECT_EQ(records[2].document.line, 3);
}

TEST(JsonlReader, ALineBeyondTheLimitIsSkippedInBoundedMemory) {
  const TemporaryFolder folder;
  const Path path =
      folder.write("a.jsonl", line_of("before") + line_of(std::string(3'000'000, 'x')) + line_of("after"));
  RecordOptions options;
  options.max_record_bytes = 1'000'000;
  const auto records = read_records(path, options);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].status, ReadStatus::kBadRecord);
  EXPECT_EQ(records[1].document.id, "a.jsonl:2");
  EXPECT_EQ(records[2].document.text, "after");
  EXPECT_EQ(records[2].document.line, 3);
}

TEST(JsonlReader, DamageIsReportedAfterEarlierRecords) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 20000; ++i) content += line_of("text number " + std::to_string(i * 7919 % 10007));
  for (const std::string& compressed : {gzip(content), zstd(content)}) {
    const std::string cut = compressed.substr(0, compressed.size() / 2);
    const auto records = read_records(folder.write("a.jsonl.x", cut));
    ASSERT_GT(records.size(), 1000u);
    for (size_t i = 0; i + 1 < records.size(); ++i) {
      ASSERT_EQ(records[i].status, ReadStatus::kDocument);
      ASSERT_EQ(records[i].document.line, static_cast<int64_t>(i) + 1);
    }
    EXPECT_EQ(records.back().status, ReadStatus::kDamaged);
    EXPECT_NE(records.back().detail.find("ends in the middle"), std::string::npos) << records.back().detail;
  }
}

TEST(JsonlReader, EmptyFilesHaveNoRecords) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_records(folder.write("a.jsonl", "")).empty());
  EXPECT_TRUE(read_records(folder.write("b.jsonl", "\n\r\n  \n")).empty());
  EXPECT_TRUE(read_records(folder.write("c.jsonl.gz", gzip(""))).empty());
}

TEST(JsonlReader, ReadsAPipeAndDetectsItsFormat) {
  const TemporaryFolder folder;
  const Path path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string content = gzip(line_of("one") + line_of("two"));
  std::jthread writer([&] { std::ofstream(path, std::ios::binary) << content; });
  RecordOptions options;
  options.format = RecordFormat::kJsonl;
  const auto records = read_records(path, options);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].document.text, "two");
}

TEST(JsonlReader, BuffersAreReused) {
  const TemporaryFolder folder;
  std::string content = line_of(std::string(5000, 'x'));
  for (int i = 0; i < 100; ++i) content += line_of("short");
  const auto reader = open_records(folder.write("a.jsonl", content), "a", {});
  Document document;
  std::string detail;
  ASSERT_EQ(reader->next(document, detail), ReadStatus::kDocument);
  const char* const buffer = document.text.data();
  while (reader->next(document, detail) == ReadStatus::kDocument) ASSERT_EQ(document.text.data(), buffer);
}

TEST(TextReader, EachFileIsADocument) {
  const TemporaryFolder folder;
  const auto records = read_records(folder.write("a.txt", "\xEF\xBB\xBFone\r\ntwo"));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].document.text, "one\r\ntwo");
  EXPECT_EQ(records[0].document.id, "a.txt:1");
  EXPECT_EQ(read_records(folder.write("b.txt", ""))[0].status, ReadStatus::kEmptyText);
  EXPECT_EQ(read_records(folder.write("c.txt", "caf\xe9"))[0].status, ReadStatus::kInvalidUtf8);
  EXPECT_EQ(read_records(folder.write("d.txt.gz", gzip("x").substr(0, 15)))[0].status, ReadStatus::kDamaged);
  EXPECT_EQ(read_records(folder.write("e.md.zst", zstd("# x")))[0].document.text, "# x");
  RecordOptions options;
  options.max_record_bytes = 10;
  EXPECT_EQ(read_records(folder.write("f.txt", std::string(20, 'x')), options)[0].status,
            ReadStatus::kBadRecord);
}

TEST(FindRecordFormat, FromNameElseContent) {
  const TemporaryFolder folder;
  const auto format = [&](const char* name, std::string_view content) {
    return find_record_format(folder.write(name, content));
  };
  EXPECT_EQ(format("a.jsonl.gz", "x"), RecordFormat::kJsonl);
  EXPECT_EQ(format("a.HTM", "x"), RecordFormat::kHtml);
  EXPECT_EQ(format("a.warc.wet.gz", "x"), RecordFormat::kWarc);
  EXPECT_EQ(format("a.tsv.zst", "x"), RecordFormat::kTsv);
  EXPECT_EQ(format("b", "\xEF\xBB\xBF {\"a\":1}"), RecordFormat::kJsonl);
  EXPECT_EQ(format("c", gzip("{\"a\":1}")), RecordFormat::kJsonl);
  EXPECT_EQ(format("d", "WARC/1.0\r\n"), RecordFormat::kWarc);
  EXPECT_EQ(format("e", "<!DOCTYPE HTML>"), RecordFormat::kHtml);
  EXPECT_EQ(format("f", "PAR1"), RecordFormat::kParquet);
  EXPECT_EQ(format("g", "{ braces of another kind }"), RecordFormat::kText);
  EXPECT_EQ(format("h", ""), RecordFormat::kText);
  expect_error(ErrorKind::kConfig, {"missing"}, [&] { find_record_format(folder.path() / "missing"); });
}

}  // namespace
}  // namespace strata::data
