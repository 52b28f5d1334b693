// `strata data` and `strata train` accept the same lines of JSON, with the same text.
#include <gtest/gtest.h>

#include <random>

#include "data/input/record_reader.h"
#include "data/tokens/reader.h"
#include "fixtures/compressed.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

// The text that a data build finds in a file of one line; nullopt if none.
std::optional<std::string> built(const Path& path) {
  const auto reader = open_records(path, path.filename().string(), {});
  Document document;
  std::string detail;
  const ReadStatus status = reader->next(document, detail);
  return status == ReadStatus::kDocument ? std::optional(document.text) : std::nullopt;
}

// The text that training finds; it rejects files that it cannot read.
std::optional<std::string> trained(const Path& path) {
  std::optional<std::string> found;
  try {
    read_documents({classify_corpus_file(path)}, "text", [&](std::string_view text) { found = text; });
  } catch (const DataError&) {
    return std::nullopt;
  }
  return found;
}

class ReadersAgree : public ::testing::Test {
 protected:
  // Both on one line, which both must accept or reject.
  std::optional<std::string> both(const std::string& line) {
    const Path path = folder_.write("a.jsonl", line + "\n");
    const auto of_build = built(path);
    auto of_training = trained(path);
    EXPECT_EQ(of_build, of_training) << line;
    return of_training;
  }
  TemporaryFolder folder_;
};

TEST_F(ReadersAgree, WithAnyOtherFields) {
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  for (const std::string& value :
       {std::string("12345678901234567890123"), std::string("-99999999999999999999"), std::string("1e999"),
        std::string("-1E+400"), std::string("1e-999"), std::string("0.1e99999999999"),
        std::string("18446744073709551616"), std::string(R"("\ud83d")"), std::string(R"("\udc00 \ud800 x")"),
        std::string(R"({"\ud800": [1e999]})"), deep,
        std::string(R"([null, true, {"text": "inner"}, "\u0000"])"), std::string("{}"),
        std::string("\"\"")}) {
    EXPECT_EQ(both(R"({"other": )" + value + R"(, "text": "the text"})"), "the text") << value;
    EXPECT_EQ(both(R"({"text": "the text", "other": )" + value + "}"), "the text") << value;
  }
}

TEST_F(ReadersAgree, OnDuplicateFieldsTheLastCounts) {
  EXPECT_EQ(both(R"({"text": "first", "text": "last"})"), "last");
  EXPECT_EQ(both(R"({"text": null, "te\u0078t": "last"})"), "last");
  EXPECT_EQ(both(R"({"text": "first", "text": ""})"), std::nullopt);
  EXPECT_EQ(both(R"({"text": "first", "text": 1})"), std::nullopt);
}

TEST_F(ReadersAgree, OnInvalidRecords) {
  for (const char* line :
       {"{\"text\": \"\\ud800\"}", "{\"text\": \"a\xff\"}", "{\"text\": \"a\", \"b\": \"\xff\"}",
        "{\"text\": \"a\"} x", "{\"text\": 01}", "{\"text\": \"a\", \"b\": 01}",
        "{\"text\": \"a\", \"b\": .5}", "{\"text\": \"a\",}", "[{}]", "{\"text\": \"a\tb\"}",
        "{\"text\": \"a\", \"b\": nul}", "{'text': 'a'}", "NaN", "{\"text\": \"a\", \"b\": NaN}"})
    EXPECT_EQ(both(line), std::nullopt) << line;
}

// Lines made of members at random, in every spelling that JSON has, some damaged in one byte.
TEST_F(ReadersAgree, OnRandomLines) {
  std::mt19937 random(5);
  const auto pick = [&](auto list) -> std::string { return *(list.begin() + random() % list.size()); };
  int read = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::optional<std::string> wanted;
    std::string line = pick(std::initializer_list<const char*>{"", " ", "\t", "\xEF\xBB\xBF"}) + "{";
    const auto members = 1 + random() % 4;
    for (size_t m = 0; m < members; ++m) {
      line += m > 0 ? "," : "";
      const bool text = random() % 3 == 0;
      if (text && random() % 5 > 0) {
        const std::string plain = "t" + std::to_string(random() % 1000);
        line += pick(std::initializer_list<const char*>{"\"text\"", "\"t\\u0065xt\"", " \"text\" "}) + ":\"" +
                plain + pick(std::initializer_list<const char*>{"\\n\"", "\\n\" ", "\\u000a\""});
        wanted = plain + "\n";
        continue;
      }
      if (text) wanted = std::nullopt;
      line +=
          (text ? std::string("\"text\"") : "\"k" + std::to_string(random() % 3) + "\"") + ": " +
          pick(std::initializer_list<const char*>{"1", "-0.0e-0", "1e999", "123456789012345678901234567890",
                                                  "null", "true", "[1,[2,{\"text\":\"no\"}]]", "{\"a\":{}}"});
    }
    line += pick(std::initializer_list<const char*>{"}", "} ", "}\r"});
    const bool damaged = random() % 4 == 0;
    if (damaged) line[random() % line.size()] = static_cast<char>(random() % 128);
    if (line.find('\n') != line.npos) continue;
    const auto found = both(line);
    if (!damaged) {
      EXPECT_EQ(found, wanted) << line;
    }
    ++(found ? read : refused);
    if (HasFailure()) break;
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 500);
}

TEST_F(ReadersAgree, OneArrayOfAllRecordsProducesAHint) {
  for (const char* content :
       {"[{\"text\": \"a\"}, {\"text\": \"b\"}]", "[\n  {\"text\": \"a\"},\n  {\"text\": \"b\"}\n]\n"}) {
    for (const char* name : {"a.json", "a.jsonl", "a.records"}) {
      const Path path = folder_.write(name, content);
      expect_error(ErrorKind::kData, {":1", "JSON array", "jq -c '.[]'"},
                   [&] { read_documents({classify_corpus_file(path)}, "text", [](std::string_view) {}); });
      Document document;
      std::string detail;
      EXPECT_EQ(open_records(path, "a", {})->next(document, detail), ReadStatus::kInvalidJson);
      EXPECT_NE(detail.find("jq -c '.[]'"), std::string::npos) << detail;
    }
  }
  const Path path = folder_.write("a.json", "{\n  \"text\": \"a\"\n}\n");
  expect_error(ErrorKind::kData, {":1", "jq -c ."},
               [&] { read_documents({classify_corpus_file(path)}, "text", [](std::string_view) {}); });
}

// Frames that zstd and lz4 skip: pzstd begins its files with one.
std::string skippable(unsigned nibble, const std::string& content) {
  std::string frame = {static_cast<char>(0x50 | nibble), '\x2a', '\x4d', '\x18'};
  for (size_t i = 0; i < 4; ++i) frame += static_cast<char>(content.size() >> (8 * i) & 0xff);
  return frame + content;
}

TEST_F(ReadersAgree, OnSkippableFrames) {
  const std::string line = "{\"text\": \"the text\"}\n";
  std::vector<std::string> files;
  for (const auto pack : {zstd, lz4}) {
    const std::string packed = pack(line);
    for (unsigned nibble = 0; nibble < 16; ++nibble) files.push_back(skippable(nibble, "abcd") + packed);
    files.push_back(skippable(0, "") + skippable(1, std::string(100000, 'x')) + packed);
    files.push_back(packed + skippable(3, "after"));
    files.push_back(skippable(0, "abcd") + pack(line.substr(0, 5)) + skippable(0, "abcd") +
                    pack(line.substr(5)));
  }
  files.push_back(skippable(0, std::string(20 << 20, '\0')) + zstd(line));
  for (const std::string& bytes : files) {
    for (const char* name : {"a.jsonl.zst", "a.jsonl.lz4", "a.jsonl", "a.records"}) {
      const Path path = folder_.write(name, bytes);
      EXPECT_EQ(built(path), "the text") << name;
      EXPECT_EQ(trained(path), "the text") << name;
    }
  }
  // A file with only such frames contains no text.
  const Path empty = folder_.write("a.txt.zst", skippable(0, "abcd"));
  EXPECT_EQ(built(empty), std::nullopt);
  EXPECT_EQ(trained(empty), std::nullopt);
}

TEST_F(ReadersAgree, CompressedBytesAreNotText) {
  const std::string text(3000, 'x');
  const std::string tar = std::string(257, '\0') + "ustar" + std::string(300, '\0');
  const std::map<std::string, std::string> packed = {
      {"gzip", gzip(gzip(text))},
      {"zstd", gzip(zstd(text))},
      {"xz", zstd(xz(text))},
      {"bzip2", gzip(bzip2(text))},
      {"lz4", zstd(lz4(text))},
      {"old format", std::string("\x02\x21\x4c\x18", 4) + text},
      {"zstd or lz4", skippable(0, "abcd") + text},
      {"a zip archive", "PK\x03\x04" + text},
      {"a 7z archive", "7z\xbc\xaf\x27\x1c" + text},
      {"a Parquet file", "PAR1\x15" + text},
      {"an Arrow file", std::string("ARROW1\0\0", 8) + text},
      {"a tar archive", tar}};
  for (const auto& [kind, bytes] : packed) {
    for (const char* name : {"a.txt", "a.jsonl", "a.csv", "a.html"}) {
      SCOPED_TRACE(kind + " " + name);
      const Path path = folder_.write(name, bytes);
      expect_error(ErrorKind::kData, {path.filename().string(), kind, "unpack"},
                   [&] { read_documents({classify_corpus_file(path)}, "text", [](std::string_view) {}); });
      const auto reader = open_records(path, "a", {});
      Document document;
      std::string detail;
      EXPECT_EQ(reader->next(document, detail), ReadStatus::kNotText);
      EXPECT_NE(detail.find(kind), std::string::npos) << detail;
      EXPECT_EQ(reader->next(document, detail), ReadStatus::kEnd);
      std::filesystem::remove(path);
    }
  }
}

TEST_F(ReadersAgree, CompressedBytesWithinATextAreFound) {
  const std::string text(100000, 'x');
  for (const std::string& inside : {gzip(text), zstd(text), xz(text), "PK\x03\x04" + std::string(5, '\0')}) {
    const Path path = folder_.write("a.txt", text + inside + text);
    expect_error(ErrorKind::kData, {"a.txt", "byte 100000"},
                 [&] { read_documents({classify_corpus_file(path)}, "text", [](std::string_view) {}); });
  }
}

}  // namespace
}  // namespace strata::data
