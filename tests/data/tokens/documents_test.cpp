// Documents by number: in token files with and without a table, and in texts.
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokens/document_table.h"
#include "data/tokens/text_documents.h"
#include "data/tokens/token_writer.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

TEST(DocumentTable, TakesTheTableOfAFile) {
  const TemporaryFolder folder;
  for (const TokenFormat format : {TokenFormat::kStrata, TokenFormat::kMegatron, TokenFormat::kDatatrove}) {
    const Path path = folder.path() / ("tokens" + std::string(token_format_extension(format)));
    TokenWriter writer(posix_file_system(), path, token_type_for(100, format), format);
    for (const std::vector<int32_t>& ids : {std::vector<int32_t>{5, 0, 7}, {8}, {9, 9, 0}}) {
      writer.append(ids);
      writer.end_document();
    }
    writer.finish({.vocab_size = 100, .end_of_text = 0}, "");
    const DocumentTable table(
        std::make_shared<const TokenFile>(path, TokenFileOptions{.vocab_size = 100, .end_of_text = 0}));
    EXPECT_EQ(table.documents(), 3);
    EXPECT_EQ(table.at(0), 0);
    EXPECT_EQ(table.at(2), 0) << "an end-of-text id within a document of the table";
    EXPECT_EQ(table.at(3), 1);
    EXPECT_EQ(table.at(6), 2);
    EXPECT_EQ(table.begin(2), 4);
    EXPECT_EQ(table.end(2), 7);
    std::filesystem::remove(Path(path).replace_extension(".idx"));
  }
}

TEST(DocumentTable, SeparatesAtEndsOfText) {
  const TokenFileOptions options{.vocab_size = 100, .end_of_text = 0};
  const DocumentTable marked(
      std::make_shared<const TokenFile>("marked", std::vector<int32_t>{5, 0, 7, 8, 0, 9}, options));
  EXPECT_EQ(marked.documents(), 3);
  EXPECT_EQ(marked.at(1), 0);
  EXPECT_EQ(marked.at(2), 1);
  EXPECT_EQ(marked.begin(2), 5);
  EXPECT_EQ(marked.end(2), 6);
  const DocumentTable whole(std::make_shared<const TokenFile>("whole", std::vector<int32_t>{5, 0, 7},
                                                              TokenFileOptions{.vocab_size = 100}));
  EXPECT_EQ(whole.documents(), 1);
  EXPECT_EQ(whole.at(2), 0);
}

TEST(TextDocuments, AreThoseThatTokenizingTakes) {
  const TemporaryFolder folder;
  folder.write("a.jsonl",
               "{\"id\": \"x\", \"text\": \"one\"}\n\n{\"text\": \"two\"}\n{\"id\": \"e\", \"text\": \"\"}\n"
               "{\"id\": 17, \"text\": \"three\"}\n{\"id\": \"x\", \"text\": \"four\"}");
  folder.write("b.txt", "five");
  folder.write("c.txt", "");
  folder.write("d.csv", "id,text\nr1,six\n,seven\n");
  const auto file = [&](const char* name) { return classify_corpus_file(folder.path() / name); };
  const TextDocuments documents({file("a.jsonl"), file("b.txt"), file("c.txt"), file("d.csv")}, "text");
  EXPECT_EQ(documents.documents(), 7);
  EXPECT_EQ(documents.place(4).file, 1u);
  EXPECT_EQ(documents.place(5).file, 3u);
  EXPECT_EQ(documents.place(6).number, 1);
  EXPECT_EQ(documents.documents_of(2), 0);
  EXPECT_EQ(documents.first_of(3), 5);
  const auto ids = documents.ids({0, 1, 2, 4, 5, 6});
  EXPECT_EQ(ids, (std::map<int64_t, RecordId>{{0, {"x", false}}, {2, {"17", true}}, {5, {"r1", false}}}));
  EXPECT_EQ(documents.find("x"), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(documents.find("17"), std::vector<int64_t>{2});
  EXPECT_TRUE(documents.find("").empty());
  folder.write("a.jsonl", "{\"id\": \"x\"}\n");
  EXPECT_THROW(documents.find("x"), DataError);
}

}  // namespace
}  // namespace strata::data
