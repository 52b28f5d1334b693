#include <gtest/gtest.h>

#include "data/input/read_records.h"
#include "fixtures/compressed.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

std::vector<std::string> outcome(const std::vector<ReadRecord>& records) {
  std::vector<std::string> all;
  for (const auto& record : records) {
    const bool document = record.status == ReadStatus::kDocument;
    all.push_back(document ? record.document.text : std::string(read_reason(record.status)));
  }
  return all;
}

using Outcome = std::vector<std::string>;

TEST(CsvReader, BadRowsAreReportedAndReadingContinues) {
  const TemporaryFolder folder;
  const Path path = folder.write("a.csv",
                                 "text,url\n"
                                 "one,a\n"
                                 "too,many,fields\n"
                                 "few\n"
                                 "\"closed\"early,b\n"
                                 "caf\xe9,c\n"
                                 "\n"
                                 "quote \" inside,d\r\n"
                                 "two,\"e\n\nf\"\n"
                                 "\"never closed,g\n"
                                 "three,h");
  const auto records = read_records(path);
  EXPECT_EQ(outcome(records), (Outcome{"one", "bad_record", "bad_record", "bad_record", "invalid_utf8",
                                       "quote \" inside", "two", "bad_record", "three"}));
  EXPECT_EQ(records[5].document.line, 8);
  EXPECT_EQ(records[6].document.fields, R"("url":"e\n\nf")");
  EXPECT_EQ(records[7].document.id, "a.csv:12");
  EXPECT_EQ(records[8].document.id, "a.csv:13");
}

TEST(CsvReader, FieldsByNameAndMissingColumns) {
  const TemporaryFolder folder;
  const Path path = folder.write("a.tsv", "body\tkey\nsome \"text\"\tk1\n\tk2\n");
  RecordOptions options;
  options.text = "body";
  options.id = "key";
  const auto records = read_records(path, options);
  EXPECT_EQ(outcome(records), (Outcome{"some \"text\"", "empty_text"}));
  EXPECT_EQ(records[1].document.id, "k2");
  const auto without = read_records(path);
  EXPECT_EQ(outcome(without), (Outcome{"no_text", "no_text"}));
  EXPECT_NE(without[0].detail.find("body, key"), std::string::npos);
}

TEST(CsvReader, EveryEndOfTheFile) {
  const TemporaryFolder folder;
  const std::string whole = "text,n\r\n\"a\"\"b\",1\r\n\"c\r\nd\",2\r\n";
  EXPECT_EQ(outcome(read_records(folder.write("a.csv", whole))), (Outcome{"a\"b", "c\r\nd"}));
  for (size_t size = 0; size <= whole.size(); ++size) {
    for (const auto& record : read_records(folder.write("a.csv", whole.substr(0, size)))) {
      EXPECT_TRUE(record.status == ReadStatus::kDocument || record.status == ReadStatus::kBadRecord) << size;
    }
  }
}

TEST(CsvReader, ALongRowIsSkippedInBoundedMemory) {
  const TemporaryFolder folder;
  RecordOptions options;
  options.max_record_bytes = 100'000;
  const std::string big(1'000'000, 'x');
  EXPECT_EQ(outcome(read_records(folder.write("a.csv", "text\n" + big + "\nafter\n"), options)),
            (Outcome{"bad_record", "after"}));
  EXPECT_EQ(outcome(read_records(folder.write("b.csv", "text\n\"" + big + "\"\nafter\n"), options)),
            (Outcome{"bad_record", "after"}));
}

TEST(CsvReader, DamageComesLast) {
  const TemporaryFolder folder;
  std::string content = "text\n";
  for (int i = 0; i < 3000; ++i) content += "row number " + std::to_string(i * 7919 % 3001) + "\n";
  const std::string compressed = gzip(content);
  const auto records = read_records(folder.write("a.csv.gz", compressed.substr(0, compressed.size() / 2)));
  ASSERT_GT(records.size(), 100u);
  for (size_t i = 0; i + 1 < records.size(); ++i)
    ASSERT_EQ(records[i].document.text, "row number " + std::to_string(i * 7919 % 3001));
  EXPECT_EQ(records.back().status, ReadStatus::kDamaged);
}

}  // namespace
}  // namespace strata::data
