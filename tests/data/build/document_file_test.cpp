#include "data/build/document_file.h"

#include <gtest/gtest.h>

#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

TEST(DocumentFile, RoundTrips) {
  TemporaryFolder folder;
  const Path path = folder / "part.documents";
  DocumentFileWriter writer(posix_file_system(), path);
  for (int i = 0; i < 50; ++i) {
    Document document;
    document.id = "id" + std::to_string(i);
    document.fields = i % 2 ? "" : "\"n\":1";
    document.line = i + 1;
    writer.append(std::string(static_cast<size_t>(i) * 60'000, 'x'), document, i % 3);
  }
  writer.finish();
  DocumentFileReader reader(path);
  StoredDocument stored;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(reader.next(stored));
    EXPECT_EQ(stored.document.text.size(), static_cast<size_t>(i) * 60'000);
    EXPECT_EQ(stored.document.id, "id" + std::to_string(i));
    EXPECT_EQ(stored.document.fields, i % 2 ? "" : "\"n\":1");
    EXPECT_EQ(stored.document.line, i + 1);
    EXPECT_EQ(stored.file, i % 3);
  }
  EXPECT_FALSE(reader.next(stored));
  EXPECT_EQ(reader.bytes_read(), static_cast<int64_t>(std::filesystem::file_size(path)));
}

TEST(DocumentFile, RejectsTruncatedFiles) {
  TemporaryFolder folder;
  const Path path = folder / "part.documents";
  DocumentFileWriter writer(posix_file_system(), path);
  writer.append("some text", {}, 0);
  writer.finish();
  const std::string whole = read_file(path);
  for (size_t size = 1; size < whole.size(); ++size) {
    folder.write("cut", whole.substr(0, size));
    DocumentFileReader reader(folder / "cut");
    StoredDocument stored;
    EXPECT_THROW(reader.next(stored), DataError) << size;
  }
}

TEST(IdFile, FindsEveryId) {
  TemporaryFolder folder;
  IdFileWriter writer(posix_file_system(), folder / "ids");
  for (const char* id : {"a", "", "long id", "b"}) writer.append({.text = id});
  writer.append({.text = "7", .is_json = true});
  writer.finish();
  const IdFile ids(folder / "ids");
  EXPECT_EQ(ids[0].text, "a");
  EXPECT_EQ(ids[1].text, "");
  EXPECT_EQ(ids[2].text, "long id");
  EXPECT_EQ(ids[3].text, "b");
  EXPECT_FALSE(ids[3].is_json);
  EXPECT_EQ(ids[4].text, "7");
  EXPECT_TRUE(ids[4].is_json);
  EXPECT_THROW(ids[5], DataError);
  folder.write("bad", "1234");
  EXPECT_THROW(IdFile(folder / "bad"), DataError);
  folder.write("bad", std::string(8, '\xff'));
  EXPECT_THROW(IdFile(folder / "bad"), DataError);
}

TEST(Decisions, RoundTrip) {
  TemporaryFolder folder;
  std::vector<Decision> decisions(2);
  decisions[0] = {
      .document = 3, .drop = true, .reason = "near_duplicate", .has_original = true, .original = {2, 9}};
  decisions[1] = {.document = 7, .drop = false, .reason = "", .cut = {{1, 4}, {9, 12}}};
  write_decisions(posix_file_system(), folder / "d", decisions);
  std::set<std::string> reasons;
  const auto read = read_decisions(folder / "d", reasons);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_TRUE(read[0].drop && read[0].has_original);
  EXPECT_EQ(read[0].reason, "near_duplicate");
  EXPECT_EQ(read[0].original, (DocumentNumber{2, 9}));
  EXPECT_EQ(read[1].document, 7u);
  EXPECT_EQ(read[1].cut, decisions[1].cut);
  const std::string whole = read_file(folder / "d");
  for (size_t size = 1; size < whole.size(); ++size) {
    folder.write("cut", whole.substr(0, size));
    try {
      EXPECT_EQ(read_decisions(folder / "cut", reasons).size(), 1u) << size;  // cut between two decisions
    } catch (const DataError&) {
    }
  }
}

}  // namespace
}  // namespace strata::data
