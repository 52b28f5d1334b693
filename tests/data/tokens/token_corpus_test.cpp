#include "data/tokens/token_corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

std::vector<int32_t> all_tokens(const TokenCorpus& corpus) {
  std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, corpus.tokens(), ids.data());
  return ids;
}

TEST(TokenCorpus, FolderOfTokenFilesReadsAsOneCorpus) {
  const TemporaryFolder folder;
  folder.write_values<uint16_t>("in/a.bin", {1, 2, 0, 3, 0});
  folder.write_values<uint16_t>("in/b.bin", {4, 5, 6});
  folder.write_values<uint64_t>("in/b.documents", {1, 3});
  folder.write("in/b.json", R"({"dtype": "u16"})");
  folder.write_values<uint16_t>("in/c.bin", {});
  folder.write_values<uint16_t>("in/d.ds", {7, 0, 8});
  folder.write_values<uint64_t>("in/d.ds.index", {2, 3});
  const auto corpus = open_token_corpus({(folder / "in").string()}, {.vocab_size = 10, .end_of_text = 0});
  EXPECT_EQ(all_tokens(corpus), (std::vector<int32_t>{1, 2, 0, 3, 0, 4, 5, 6, 7, 0, 8}));
  EXPECT_EQ(corpus.document_ends(), (std::vector<int64_t>{3, 5, 6, 8, 10, 11}));
  std::vector<uint8_t> starts(11, 9);
  const auto ids = all_tokens(corpus);
  corpus.mark_document_starts(0, 11, ids.data(), starts.data());
  EXPECT_EQ(starts, (std::vector<uint8_t>{0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1}));
  // Every range of it has the same tokens and marks, except the first mark.
  for (int64_t begin = 0; begin < 11; ++begin) {
    for (int64_t n = 0; begin + n <= 11; ++n) {
      std::vector<int32_t> part(static_cast<size_t>(n));
      std::vector<uint8_t> marks(static_cast<size_t>(n), 9);
      corpus.read(begin, n, part.data());
      corpus.mark_document_starts(begin, n, part.data(), marks.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), ids.begin() + begin));
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_EQ(marks[static_cast<size_t>(j)], j == 0 ? 0 : starts[static_cast<size_t>(begin + j)])
            << begin << " + " << j;
      }
    }
  }
}

// One id begins and ends every text, as <|endoftext|> does with GPT-2 and <bos_eos> tokenizers: documents
// stay whole, with a table and without one, in any window.
TEST(TokenCorpus, SameIdMayBeginAndEndTexts) {
  constexpr uint16_t kMark = 9;
  const TemporaryFolder folder;
  std::vector<uint16_t> ids;
  std::vector<uint64_t> ends;
  for (int d = 0; d < 40; ++d) {
    ids.push_back(kMark);
    for (int i = 0; i < d % 4 + 1; ++i) ids.push_back(static_cast<uint16_t>(d % 8));
    ids.push_back(kMark);
    ends.push_back(ids.size());
  }
  folder.write_values("table.bin", ids);
  folder.write_values("table.documents", ends);
  folder.write_values("plain.bin", ids);
  const TokenFileOptions options{.vocab_size = 10, .end_of_text = kMark, .end_begins = true};
  const std::vector<int64_t> wanted(ends.begin(), ends.end());
  for (const char* name : {"table.bin", "plain.bin"}) {
    SCOPED_TRACE(name);
    const auto corpus = open_token_corpus({(folder / name).string()}, options);
    EXPECT_EQ(corpus.document_ends(), wanted);
    const auto all = all_tokens(corpus);
    for (int64_t begin = 0; begin < corpus.tokens(); ++begin) {
      for (int64_t n = 1; n < 12 && begin + n <= corpus.tokens(); ++n) {
        std::vector<uint8_t> marks(static_cast<size_t>(n), 9);
        corpus.mark_document_starts(begin, n, &all[static_cast<size_t>(begin)], marks.data());
        for (int64_t j = 0; j < n; ++j) {
          const bool starts = j > 0 && std::binary_search(wanted.begin(), wanted.end(), begin + j);
          ASSERT_EQ(marks[static_cast<size_t>(j)], starts ? 1 : 0) << begin << " + " << j;
        }
      }
    }
    // Held-out documents are whole, too.
    const auto split = split_corpus(corpus, 0.5, 1);
    EXPECT_EQ(split.valid.document_ends().size() + split.train.document_ends().size(), 40u);
  }
  // A text with the mark in its middle still ends there.
  folder.write_values<uint16_t>("spelled.bin", {9, 1, 9, 2, 9, 9, 3, 9});
  folder.write_values<uint64_t>("spelled.documents", {5, 8});
  EXPECT_EQ(open_token_corpus({(folder / "spelled.bin").string()}, options).document_ends(),
            (std::vector<int64_t>{3, 5, 8}));
  // If the mark only ends texts, two in a row are an empty text.
  folder.write_values<uint16_t>("ends.bin", {9, 9, 1, 9, 9, 2});
  EXPECT_EQ(open_token_corpus({(folder / "ends.bin").string()}, {.vocab_size = 10, .end_of_text = kMark})
                .document_ends(),
            (std::vector<int64_t>{1, 2, 4, 5, 6}));
}

TEST(TokenCorpus, NamedFilesMustExist) {
  const TemporaryFolder folder;
  const std::string nothing = (folder / "*.bin").string();
  expect_error(ErrorKind::kConfig, {nothing}, [&] { open_token_corpus({nothing}); });
  const Path text = folder.write("a.txt", "text");
  expect_error(ErrorKind::kConfig, {"a.txt", "token file"}, [&] { open_token_corpus({text.string()}); });
  const Path empty = folder.write("e.bin", "");
  expect_error(ErrorKind::kData, {"e.bin", "no tokens"},
               [&] { open_token_corpus({empty.string()}, {.vocab_size = 9}); });
}

TEST(TokenCorpus, MegatronPrefixOrIndexOpensThePair) {
  const TemporaryFolder folder;
  std::string index("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 34);
  index += std::string("\3\0\0\0", 4) + std::string(8, '\0') + std::string(8, '\0') +
           std::string("\1\0\0\0\0\0\0\0", 8);
  folder.write_values<uint16_t>("text_document.bin", {1, 2, 3});
  folder.write("text_document.idx", index);
  for (const char* name : {"text_document", "text_document.idx", "text_document.bin", "text*"}) {
    EXPECT_EQ(all_tokens(open_token_corpus({(folder / name).string()})), (std::vector<int32_t>{1, 2, 3}))
        << name;
  }
}

// 250 documents of 1 to 7 tokens, each token the number of its document; in two files.
TokenCorpus numbered_documents(const TemporaryFolder& folder, int64_t documents) {
  std::vector<uint16_t> ids[2];
  std::vector<uint64_t> ends[2];
  for (int64_t d = 0; d < documents; ++d) {
    const int half = d < documents / 2 ? 0 : 1;
    ids[half].insert(ids[half].end(), static_cast<size_t>(1 + d % 7), static_cast<uint16_t>(d));
    ends[half].push_back(ids[half].size());
  }
  for (int half = 0; half < 2; ++half) {
    folder.write_values("part" + std::to_string(half) + ".bin", ids[half]);
    folder.write_values("part" + std::to_string(half) + ".documents", ends[half]);
  }
  return open_token_corpus({(folder / "part*").string()}, {.vocab_size = 1000});
}

TEST(SplitCorpus, WholeDocumentsIfThereAreEnough) {
  const TemporaryFolder folder;
  const auto corpus = numbered_documents(folder, 250);
  const auto split = split_corpus(corpus, 0.1, 42);
  EXPECT_EQ(split.train.tokens() + split.valid.tokens(), corpus.tokens());
  const auto valid_ids = all_tokens(split.valid), train_ids = all_tokens(split.train);
  const std::set<int32_t> valid(valid_ids.begin(), valid_ids.end()),
      train(train_ids.begin(), train_ids.end());
  EXPECT_EQ(valid.size(), 25u);
  EXPECT_EQ(train.size(), 225u);
  for (const int32_t d : valid) {
    EXPECT_FALSE(train.contains(d));
    EXPECT_EQ(std::count(valid_ids.begin(), valid_ids.end(), d), 1 + d % 7);
  }
  EXPECT_TRUE(std::is_sorted(valid_ids.begin(), valid_ids.end()));
  EXPECT_EQ(split.valid.document_ends().size(), 25u);
  EXPECT_EQ(split.train.document_ends().size(), 225u);
  EXPECT_EQ(all_tokens(split_corpus(corpus, 0.1, 42).valid), valid_ids);
  EXPECT_NE(all_tokens(split_corpus(corpus, 0.1, 43).valid), valid_ids);
  EXPECT_EQ(split_corpus(corpus, 0.0001, 1).valid.document_ends().size(), 1u);
}

TEST(SplitCorpus, LastTokensIfThereAreFewDocuments) {
  const TemporaryFolder folder;
  const auto corpus = numbered_documents(folder, 99);
  const auto ids = all_tokens(corpus);
  const auto split = split_corpus(corpus, 0.25, 42);
  EXPECT_EQ(split.valid.tokens(), std::llround(0.25 * static_cast<double>(corpus.tokens())));
  auto joined = all_tokens(split.train);
  const auto valid = all_tokens(split.valid);
  joined.insert(joined.end(), valid.begin(), valid.end());
  EXPECT_EQ(joined, ids);
  EXPECT_EQ(split_corpus(corpus, 0.0001, 42).valid.tokens(), 2) << "one token predicts nothing";
  expect_error(ErrorKind::kConfig, {"valid_fraction", "1.5"}, [&] { split_corpus(corpus, 1.5, 1); });
}

}  // namespace
}  // namespace strata::data
