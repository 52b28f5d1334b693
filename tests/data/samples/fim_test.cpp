#include "data/samples/fim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "data/samples/corpus_double.h"

namespace strata::data {
namespace {

constexpr int32_t kPrefix = 90001, kMiddle = 90002, kSuffix = 90003, kEnd = 90000;

FimOptions options(double rate, double spm_rate = 0.5) {
  return {.rate = rate,
          .spm_rate = spm_rate,
          .prefix = kPrefix,
          .middle = kMiddle,
          .suffix = kSuffix,
          .end_of_text = kEnd,
          .begin_of_text = {}};
}

std::vector<int32_t> counting(int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(FillInTheMiddle, LosesOnlyTheLastThreeTokens) {
  std::vector<int32_t> scratch;
  for (const double spm_rate : {0.0, 1.0}) {
    for (const int64_t n : {0, 1, 2, 3, 4, 5, 17, 256}) {
      for (uint64_t at = 0; at < 50; ++at) {
        std::vector<int32_t> ids = counting(n);
        fill_in_the_middle(ids.data(), n, options(1, spm_rate), {7, 1}, at, 0, scratch);
        if (n < 4) {
          EXPECT_EQ(ids, counting(n));
          continue;
        }
        ASSERT_EQ(static_cast<int64_t>(ids.size()), n);
        ASSERT_EQ(ids[0], kPrefix);
        const auto suffix = std::find(ids.begin(), ids.end(), kSuffix);
        const auto middle = std::find(ids.begin(), ids.end(), kMiddle);
        ASSERT_TRUE(suffix < middle && middle != ids.end());
        // Prefix and middle, which follow each other, then the suffix.
        std::vector<int32_t> text(ids.begin() + 1, suffix);
        text.insert(text.end(), middle + 1, ids.end());
        text.insert(text.end(), suffix + 1, middle);
        EXPECT_EQ(text, counting(n - 3));
        EXPECT_TRUE(spm_rate == 0 || suffix == ids.begin() + 1);
      }
    }
  }
}

TEST(FillInTheMiddle, RatesAndCutsFollowTheOptions) {
  std::vector<int32_t> scratch;
  const int64_t n = 23, runs = 20000;
  int64_t changed = 0, spm = 0;
  std::map<size_t, int64_t> middles;
  for (int64_t at = 0; at < runs; ++at) {
    std::vector<int32_t> ids = counting(n);
    fill_in_the_middle(ids.data(), n, options(0.7, 0.25), {9, 1}, static_cast<uint64_t>(at), 3, scratch);
    if (ids[0] != kPrefix) {
      EXPECT_EQ(ids, counting(n));
      continue;
    }
    ++changed;
    const auto suffix = std::find(ids.begin(), ids.end(), kSuffix);
    const auto middle = std::find(ids.begin(), ids.end(), kMiddle);
    if (suffix == ids.begin() + 1) {
      ++spm;
    } else {
      ++middles[static_cast<size_t>(ids.end() - middle - 1)];
    }
  }
  EXPECT_NEAR(static_cast<double>(changed) / static_cast<double>(runs), 0.7, 0.015);
  // An empty prefix (lower of two cuts among 21 places is the first: 41 of 441) makes PSM look like SPM.
  const double empty = 41.0 / 441;
  EXPECT_NEAR(static_cast<double>(spm) / static_cast<double>(changed), 0.25 + 0.75 * empty, 0.02);
  EXPECT_EQ(middles.begin()->first, 0u);
  EXPECT_EQ(middles.rbegin()->first < 20u, true);  // a middle of all 20 has an empty prefix
  EXPECT_GT(middles[0], middles[10]);
}

TEST(FillInTheMiddle, KeepsTheEndsOfADocument) {
  std::vector<int32_t> scratch;
  FimOptions with_ends = options(1, 0);
  with_ends.begin_of_text = {7, 8};
  std::vector<int32_t> ids = {7, 8, 1, 2, 3, 4, 5, 6, kEnd};
  fill_in_the_middle(ids.data(), 9, with_ends, {1, 1}, 5, 0, scratch);
  EXPECT_EQ(ids[0], 7);
  EXPECT_EQ(ids[1], 8);
  EXPECT_EQ(ids[2], kPrefix);
  EXPECT_EQ(ids[8], kEnd);
  std::vector<int32_t> only_ends = {7, 8, kEnd};
  fill_in_the_middle(only_ends.data(), 3, with_ends, {1, 1}, 5, 0, scratch);
  EXPECT_EQ(only_ends, (std::vector<int32_t>{7, 8, kEnd}));
}

TEST(FillInTheMiddle, SentinelsAreFoundByTheirNames) {
  const std::map<std::string_view, int32_t> qwen = {
      {"<|fim_prefix|>", 3}, {"<|fim_middle|>", 4}, {"<|fim_suffix|>", 5}, {"<fim_prefix>", 9}};
  const auto in = [](const std::map<std::string_view, int32_t>& names) {
    return [&names](std::string_view name) -> std::optional<int32_t> {
      const auto found = names.find(name);
      return found == names.end() ? std::nullopt : std::optional(found->second);
    };
  };
  FimOptions found;
  find_fim_tokens(in(qwen), found);
  EXPECT_EQ(found.prefix, 3);
  EXPECT_EQ(found.middle, 4);
  EXPECT_EQ(found.suffix, 5);
  // DeepSeek: <begin> prefix <hole> suffix <end> middle.
  const std::map<std::string_view, int32_t> deepseek = {
      {"<｜fim▁begin｜>", 1}, {"<｜fim▁hole｜>", 2}, {"<｜fim▁end｜>", 3}};
  find_fim_tokens(in(deepseek), found);
  EXPECT_EQ(found.prefix, 1);
  EXPECT_EQ(found.suffix, 2);
  EXPECT_EQ(found.middle, 3);
  const std::map<std::string_view, int32_t> none = {{"<fim_prefix>", 1}, {"<|fim_middle|>", 2}};
  expect_error(ErrorKind::kConfig, {"data.fim_rate", "<fim_prefix> <fim_middle> <fim_suffix>", "special"},
               [&] { find_fim_tokens(in(none), found); });
}

// Documents of counted tokens, each ended by kEnd.
TokenCorpus document_corpus(const TemporaryFolder& folder) {
  std::vector<uint32_t> ids;
  for (uint32_t d = 0; d < 300; ++d) {
    for (uint32_t j = 0; j < 1 + d * 7 % 60; ++j) ids.push_back(static_cast<uint32_t>(ids.size()));
    ids.push_back(kEnd);
  }
  const Path path = folder.write_values("documents.bin", ids);
  folder.write("documents.json", R"({"dtype": "u32", "end_of_text_id": 90000})");
  return open_token_corpus({path.string()});
}

TEST(FillInTheMiddle, OfSamplesInEveryPacking) {
  const TemporaryFolder folder;
  const TokenCorpus corpus = document_corpus(folder);
  const int64_t length = 64, rows = 40;
  for (const Pack pack : {Pack::kDocuments, Pack::kStream, Pack::kBestFit}) {
    const SampleOptions plain{.sequence_length = length, .seed = 3, .pack = pack};
    SampleOptions fim = plain;
    fim.fim = options(0.6);
    const auto source = single_source(corpus, plain), changed = single_source(corpus, fim);
    OwnedBatch before(rows, length), after(rows, length), again(rows, length);
    BatchScratch scratch;
    // In another epoch samples are changed differently.
    const int64_t first = source.samples_per_epoch();
    source.fill(first, rows, before.view(), scratch);
    changed.fill(first, rows, after.view(), scratch);
    // Masks, positions and the ends of documents are unchanged.
    EXPECT_EQ(after.positions, before.positions);
    EXPECT_EQ(after.kv_begin, before.kv_begin);
    int64_t middles = 0;
    for (size_t i = 0; i < after.tokens.size(); ++i) {
      EXPECT_EQ(after.targets[i] == -1, before.targets[i] == -1);
      EXPECT_EQ(after.tokens[i] == kEnd, before.tokens[i] == kEnd);
      if (i + 1 < after.tokens.size() && after.targets[i] >= 0 &&
          (i + 1) % static_cast<size_t>(length) != 0) {
        EXPECT_EQ(after.targets[i], after.tokens[i + 1]);
      }
      middles += after.tokens[i] == kMiddle ? 1 : 0;
      EXPECT_TRUE(after.tokens[i] < kEnd || after.tokens[i] <= kSuffix);
    }
    EXPECT_GT(middles, 20);
    // Row by row, backwards, the same.
    for (int64_t row = rows; row-- > 0;) {
      changed.fill(first + row, 1, row_of(again.view(), changed.shape(), row), scratch);
    }
    EXPECT_EQ(after, again);
    // The same window in another epoch is cut elsewhere.
    const auto place = changed.place(first);
    int64_t earlier = 0;
    while (changed.place(earlier).window != place.window) ++earlier;
    OwnedBatch other(1, length);
    changed.fill(earlier, 1, other.view(), scratch);
    EXPECT_FALSE(std::equal(other.tokens.begin(), other.tokens.end(), after.tokens.begin()));
  }
}

}  // namespace
}  // namespace strata::data
