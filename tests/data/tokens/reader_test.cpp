#include "data/tokens/reader.h"

#include <gtest/gtest.h>

#include "data/input/byte_stream.h"
#include "fixtures/compressed.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

std::vector<std::string> documents(const std::vector<std::string>& patterns,
                                   const ReaderOptions& options = {}, const std::string& field = "text") {
  std::vector<std::string> found;
  read_documents(
      find_corpus_files(patterns), field, [&](std::string_view text) { found.emplace_back(text); }, options);
  return found;
}

TEST(CorpusFiles, KindFromNameAndContent) {
  const TemporaryFolder folder;
  folder.write("a.txt", "{\"text\": 1}");
  folder.write("b.jsonl", "");
  folder.write("c.log", "plain { text");
  folder.write("d.data", "\n {\"text\": \"x\"}\n");
  folder.write("e.dump", gzip("{\"text\": \"x\"}\n"));
  folder.write("f.jsonl.zst", zstd("{}"));
  folder.write("g.bin", "");
  folder.write("g.json", "{}");
  folder.write("g.documents", "");
  folder.write("h.ds", "");
  folder.write("h.ds.index", "");
  folder.write("h.ds.metadata", "");
  folder.write("i.c", "{ \"not json\"; }");
  folder.write(".hidden", "x");
  folder.write("tokens.bin.part", "x");
  std::string got;
  for (const auto& file : find_corpus_files({folder.path().string()})) {
    got += file.path.filename().string() + ":" + "tjbr"[static_cast<int>(file.kind)] +
           "-gz"[static_cast<int>(file.compression)] + " ";
  }
  EXPECT_EQ(got, "a.txt:t- b.jsonl:j- c.log:t- d.data:j- e.dump:jg f.jsonl.zst:jz g.bin:b- h.ds:b- i.c:j- ");
  folder.write("n.npy", "x");
  expect_error(ErrorKind::kConfig, {"n.npy", "cannot be read here"},
               [&] { find_corpus_files({folder.path().string()}); });
}

TEST(Reader, OtherFormatsYieldTheirRecords) {
  const TemporaryFolder folder;
  std::string rows = "body,id\n";
  std::vector<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    expected.push_back("row \"" + std::to_string(i) + "\"\n\t");
    rows += "\"row \"\"" + std::to_string(i) + "\"\"\n\t\"," + std::to_string(i) + "\n";
    if (i % 9 == 0) rows += ",empty\n";
  }
  const Path csv = folder.write("a.csv", rows);
  folder.write("b.html", "<nav><a href=x>menu</a></nav><p>a page</p>");
  expected.push_back("a page");
  std::vector<std::string> got;
  const auto files = find_corpus_files({folder.path().string()});
  read_documents(files, "body", [&](std::string_view text) { got.emplace_back(text); },
                 {.block_bytes = 1000});
  EXPECT_EQ(got, expected);

  BlockReader reader({files[0]}, {.block_bytes = 1000, .text_field = "body"});
  TextBlock block;
  int64_t stored = 0;
  while (reader.next(block)) stored += block.stored_bytes;
  EXPECT_TRUE(block.last);
  EXPECT_EQ(stored, static_cast<int64_t>(rows.size()));
  EXPECT_EQ(block.content_hash, hash64(rows.data(), rows.size()));

  expect_error(ErrorKind::kData, {"a.csv:2", "no_text", "\"text\""},
               [&] { read_documents(files, "text", [](std::string_view) {}); });
}

TEST(CorpusFiles, OrderAndAbsence) {
  const TemporaryFolder folder;
  folder.write("b/1.txt", "1");
  folder.write("a/2.txt", "2");
  folder.write("a/10.txt", "10");
  const std::string at = folder.path().string();
  EXPECT_EQ(documents({at + "/b/*.txt", at + "/a", at + "/**/*.txt"}),
            (std::vector<std::string>{"1", "10", "2"}));
  expect_error(ErrorKind::kConfig, {at + "/c/*.txt", "no file"}, [&] {
    documents({at + "/a", at + "/c/*.txt"});
  });
  std::filesystem::create_directories(folder / "empty");
  expect_error(ErrorKind::kConfig, {"/empty"}, [&] { documents({at + "/empty"}); });
}

TEST(Reader, TextFilesKeepEveryByte) {
  const TemporaryFolder folder;
  const std::string bytes(
      "\xEF\xBB\xBF"
      "a\0b\xff\xfe\r\n\n",
      11);
  std::string large;
  for (int i = 0; large.size() < 1000000; ++i) large += "line " + std::to_string(i) + (i % 3 ? "\n" : "\r\n");
  folder.write("1.txt", bytes);
  folder.write("2.txt", "");  // no document
  folder.write("3.txt", large);
  folder.write("4.txt.gz", gzip(large));
  folder.write("5.txt.gz", gzip(bytes) + gzip(large) + std::string(512, '\0'));  // members, and padding
  folder.write("6.txt.zst", zstd(large) + zstd(bytes));
  folder.write("7.txt.gz", gzip(""));
  folder.write("8.txt", large.substr(0, 1 << 18));  // just what one read takes
  const std::vector<std::string> expected{bytes,         large,         large,
                                          bytes + large, large + bytes, large.substr(0, 1 << 18)};
  for (const int threads : {1, 2, 5}) {
    EXPECT_EQ(documents({folder.path().string()}, {.threads = threads, .budget_bytes = 1000}), expected);
  }
}

TEST(Reader, JsonlInBlocks) {
  const TemporaryFolder folder;
  std::vector<std::string> expected;
  std::string lines = "\xEF\xBB\xBF";
  for (int i = 0; i < 3000; ++i) {
    const std::string text = std::string(static_cast<size_t>(i % 97 + 1), 'x') + std::to_string(i);
    expected.push_back(text);
    lines += R"({"id": 7, "text": ")" + text + R"(", "meta": {"text": "other"}})" + (i % 5 ? "\n" : "\r\n");
    if (i % 50 == 0) lines += i % 100 ? "\n" : "  \t\r\n";  // blank lines are passed over
    if (i % 70 == 0) lines += "{\"text\": \"\"}\n";         // empty texts too
  }
  expected.push_back(std::string(700000, 'y'));  // longer than a block
  lines +=
      "{\"text\": \"" + expected.back() + "\"}\n{\"text\": \"\\u00e9\\n\\u0000z\"}";  // no newline at the end
  expected.push_back(std::string("\xc3\xa9\n\0z", 5));
  folder.write("a.jsonl", lines);
  folder.write("b.jsonl.gz", gzip(lines));
  folder.write("c.jsonl.zst", zstd(lines));
  for (const int64_t block : {1, 1000, 1 << 20}) {
    for (const char* name : {"a.jsonl", "b.jsonl.gz", "c.jsonl.zst"}) {
      EXPECT_EQ(documents({(folder / name).string()}, {.block_bytes = block}), expected) << name;
    }
  }
}

TEST(Reader, OtherField) {
  const TemporaryFolder folder;
  const Path path = folder.write("a.jsonl", R"({"text": "no", "content": "yes"})");
  EXPECT_EQ(documents({path.string()}, {}, "content"), std::vector<std::string>{"yes"});
}

TEST(Reader, BadLinesAreNamed) {
  const TemporaryFolder folder;
  auto expect_refused = [&](const std::string& line, const std::vector<std::string>& parts) {
    std::string lines;
    for (int i = 0; i < 20000; ++i) lines += "{\"text\": \"fine\"}\n";
    const Path path = folder.write("bad.jsonl", lines + "\n" + line + "\n" + lines);
    std::vector<std::string> all{path.string() + ":20002"};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_error(ErrorKind::kData, all, [&] { documents({path.string()}); });
  };
  expect_refused("{\"text\": \"a\"", {"not valid JSON"});
  expect_refused("{\"text\": \"a\"} trailing", {"not valid JSON"});
  expect_refused("{\"text\": \"\xff\"}", {"not valid JSON"});
  expect_refused("{\"text\": \"a\x01\"}", {"not valid JSON"});
  expect_refused("[1, 2]", {"an array"});
  expect_refused("{\"body\": \"a\", \"n\": 1}", {"no field \"text\"", "\"body\", \"n\"", "data.text_field"});
  expect_refused("{}", {"no field \"text\"", "none"});
  expect_refused("{\"text\": null}", {"null", "string"});
  expect_refused("{\"text\": 12}", {"a number", "string"});
}

TEST(Reader, RejectsDamagedCompression) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 50000; ++i) text += std::to_string(i * 7919);
  for (const std::string& whole : {gzip(text), zstd(text)}) {
    auto expect_refused = [&](const std::string& stored) {
      const Path path = folder.write("bad.txt", stored);
      expect_error(ErrorKind::kData, {"bad.txt"}, [&] { documents({path.string()}); });
    };
    expect_refused(whole.substr(0, whole.size() / 2));
    expect_refused(whole.substr(0, whole.size() - 1));
    std::string damaged = whole;
    for (size_t i = 0; i < 40; ++i) damaged[damaged.size() / 2 + i] = static_cast<char>(i * 37);
    expect_refused(damaged);
  }
}

TEST(Reader, StopsInTheMiddle) {
  const TemporaryFolder folder;
  for (int i = 0; i < 20; ++i) folder.write(std::to_string(i) + ".txt", std::string(300000, 'x'));
  BlockReader reader(find_corpus_files({folder.path().string()}), {.threads = 3, .budget_bytes = 500000});
  TextBlock block;
  EXPECT_TRUE(reader.next(block));
}

TEST(ByteStream, HashCoversTheStoredFile) {
  const TemporaryFolder folder;
  const std::string stored = gzip(std::string(600000, 'a'));
  ByteStream stream(folder.write("a.gz", stored), Compression::kGzip);
  std::string out(1 << 20, '\0');
  EXPECT_EQ(stream.read(out.data(), out.size()), 600000u);
  EXPECT_EQ(stream.content_hash(), hash64(stored));
  EXPECT_EQ(stream.stored_bytes(), static_cast<int64_t>(stored.size()));
}

}  // namespace
}  // namespace strata::data
