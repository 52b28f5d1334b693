#include "data/samples/eval_windows.h"

#include <gtest/gtest.h>

#include "data/samples/corpus_double.h"

namespace strata::data {
namespace {

TEST(EvalWindows, EachTargetCountsInTheFirstWindowThatContainsIt) {
  const TemporaryFolder folder;
  for (const int64_t tokens : {2, 3, 7, 8, 9, 10, 17, 40, 41, 42}) {
    const auto corpus = counting_corpus(folder, "a", tokens, 1);
    for (const int64_t length : {1, 3, 8, 50}) {
      for (int64_t stride = 1; stride <= length; ++stride) {
        const EvalWindows windows(corpus, {.sequence_length = length, .stride = stride});
        OwnedBatch batch(windows.windows() + 2, length);
        BatchScratch scratch;
        EXPECT_EQ(windows.fill(0, windows.windows() + 2, batch.view(), scratch), tokens - 1);
        int32_t last = 1;  // ids count from 1, so targets must come as 2, 3, …
        for (int64_t row = 0; row < windows.windows() + 2; ++row) {
          int64_t counted = 0;
          for (int64_t j = 0; j < length; ++j) {
            const auto at = static_cast<size_t>(row * length + j);
            ASSERT_GE(batch.tokens[at], 0);
            if (batch.targets[at] < 0) continue;
            ASSERT_EQ(batch.targets[at], ++last) << tokens << " " << length << " " << stride;
            ASSERT_EQ(batch.tokens[at], last - 1);
            ASSERT_EQ(batch.tokens[static_cast<size_t>(row * length)], row * stride + 1);
            ASSERT_EQ(batch.kv_begin[at], 0);
            ASSERT_EQ(batch.positions[at], j);
            ++counted;
          }
          EXPECT_EQ(counted > 0, row < windows.windows());
        }
        EXPECT_EQ(last, tokens);
      }
    }
  }
}

TEST(EvalWindows, DefaultsAndDocuments) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<uint16_t>("a.bin", {1, 2, 0, 3, 4, 0, 5});
  const auto corpus = open_token_corpus({path.string()}, {.vocab_size = 10, .end_of_text = 0});
  BatchScratch scratch;
  OwnedBatch batch(2, 4);
  const EvalWindows stream(corpus, {.sequence_length = 4});
  EXPECT_EQ(stream.windows(), 2);
  EXPECT_EQ(stream.fill(0, 2, batch.view(), scratch), 6);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{2, 0, 3, 4, 0, 5, -1, -1}));
  const EvalWindows documents(corpus, {.sequence_length = 4, .pack = Pack::kDocuments});
  EXPECT_EQ(documents.fill(0, 2, batch.view(), scratch), 4);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{2, 0, -1, 4, 0, -1, -1, -1}));
  EXPECT_EQ(batch.kv_begin, (std::vector<int32_t>{0, 0, 0, 3, 0, 0, 2, 3}));
  const EvalWindows few(corpus, {.sequence_length = 4, .max_tokens = 4});
  EXPECT_EQ(few.fill(0, 1, batch.view(), scratch), 3);
}

TEST(EvalWindows, RequiresTwoTokens) {
  const TemporaryFolder folder;
  const auto corpus = counting_corpus(folder, "a", 1);
  expect_error(ErrorKind::kData, {"1 tokens"}, [&] { EvalWindows(corpus, {.sequence_length = 4}); });
  expect_error(ErrorKind::kConfig, {"sequence-length"}, [&] { EvalWindows(corpus, {}); });
}

}  // namespace
}  // namespace strata::data
