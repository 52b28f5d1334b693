#include "data/tokenizer/train_bpe.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "base/parallel.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/golden.h"

namespace strata::data {
namespace {

TrainedTokenizer train_on(const std::vector<std::string_view>& texts, const TrainOptions& options) {
  size_t next = 0;
  return train_bpe(
      [&](std::string_view& text) {
        if (next == texts.size()) return false;
        text = texts[next++];
        return true;
      },
      options);
}

// Byte for byte the file that the reference library writes.
TEST(TrainBpe, WritesTheReferenceFile) {
  const std::string corpus = read_file(golden_path("corpus.txt"));
  for (const char* pattern : {"gpt2", "llama3", "qwen"}) {
    const auto trained = train_on({corpus}, {.vocab_size = 520, .pattern = pattern});
    EXPECT_EQ(trained.json, read_file(golden_path(std::string(pattern) + "_trained.json"))) << pattern;
    EXPECT_EQ(trained.vocab_size, 520);
  }
}

TEST(TrainBpe, TokensAroundATextAreThoseOfEncoding) {
  const auto trained =
      train_on({read_file(golden_path("corpus.txt"))}, {.vocab_size = 400,
                                                        .special_tokens = {"[PAD]", "[CLS]", "[SEP]"},
                                                        .begin_of_text = "[CLS]",
                                                        .end_of_text = "[SEP]"});
  const auto tokenizer = Tokenizer::from_json(trained.json, "trained");
  const auto plain = tokenizer.encode("a text");
  auto expected = plain;
  expected.insert(expected.begin(), 1);
  expected.push_back(2);
  EXPECT_EQ(tokenizer.encode("a text", {.add_special_tokens = true}), expected);
  EXPECT_EQ(tokenizer.end_of_text_id(), 2);
}

// The text of the King James Bible (Debian: bible-kjv, bible-kjv-text) has published hashes of its merges.
TEST(TrainBpe, KingJamesBible) {
  std::string text;
  if (FILE* pipe = popen("bible -f Gen1:1-Rev22:21 2>/dev/null", "r")) {
    char buffer[65536];
    for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    pclose(pipe);
  }
  if (text.size() != 4404412) GTEST_SKIP() << "needs the Debian packages bible-kjv and bible-kjv-text";

  const auto trained = train_on({text}, {.vocab_size = 30000, .min_frequency = 0, .special_tokens = {}});
  EXPECT_EQ(trained.merges, 20522);
  EXPECT_EQ(trained.vocab_size, 20778);
  EXPECT_EQ(trained.distinct_pieces, 13836);
  const Tokenizer tokenizer = Tokenizer::from_json(trained.json, "kjv");
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    tokenizer.encode(std::string_view(text).substr(at, end - at), ids);
    at = end;
  }
  EXPECT_EQ(ids.size(), 1076905u);
  EXPECT_EQ(tokenizer.decode(ids), text);

  // The merges of a smaller vocabulary are the first ones of a larger.
  const auto small = train_on({text}, {.vocab_size = 8256, .min_frequency = 0, .special_tokens = {}});
  EXPECT_EQ(small.merges, 8000);
  const Tokenizer small_tokenizer = Tokenizer::from_json(small.json, "kjv");
  EXPECT_EQ(small_tokenizer.encode(text).size(), 1105769u);
  const auto first = small_tokenizer.encode(std::string_view(text).substr(0, text.find('\n') + 1));
  std::vector<std::string> tokens;
  for (const int32_t id : first) tokens.emplace_back(small_tokenizer.id_to_token(id));
  EXPECT_EQ(tokens,
            (std::vector<std::string>{"Ge", "1", ":", "1", "ĠIn", "Ġthe", "Ġbeginning", "ĠGod", "Ġcreated",
                                      "Ġthe", "Ġheaven", "Ġand", "Ġthe", "Ġearth", ".", "Ċ"}));
}

TEST(TrainBpe, ThreadsAndFilesDoNotMatter) {
  const std::string corpus = read_file(golden_path("corpus.txt"));
  std::string large;
  while (large.size() < (size_t{3} << 20)) large += corpus;
  const TrainOptions options{.vocab_size = 600};
  const int threads = compute_threads();
  set_compute_threads(1);
  const auto one = train_on({large}, options);
  set_compute_threads(3);
  const auto three = train_on({large}, options);
  std::vector<std::string_view> lines;  // each line a text of its own
  for (size_t at = 0; at < large.size();) {
    const size_t end = large.find('\n', at) + 1;
    lines.push_back(std::string_view(large).substr(at, end - at));
    at = end;
  }
  const auto parts = train_on(lines, options);
  set_compute_threads(threads);
  EXPECT_EQ(one.json, three.json);
  EXPECT_EQ(one.json, parts.json);
}

// "the" twice in each of many words: the counts pass 2^31 and stay exact.
TEST(TrainBpe, CountsPassThirtyOneBits) {
  WordCounts words;
  words.add("the", int64_t{1} << 32);
  words.add("of", (int64_t{1} << 32) + 1);
  const auto vocabulary = learn_merges(words, 259, 2, {});
  ASSERT_EQ(vocabulary.merges.size(), 3u);
  EXPECT_EQ(vocabulary.tokens[256], "of");
  EXPECT_EQ(vocabulary.tokens[257], "he");  // ties: the smaller pair of ids, h before t
}

TEST(TrainBpe, OverlapsAndMinimumFrequency) {
  WordCounts words;
  words.add("aaa", 1);
  EXPECT_EQ(learn_merges(words, 1000, 2, {}).tokens.back(), "aa");  // (a, a) counts twice in "aaa"
  EXPECT_EQ(learn_merges(words, 1000, 3, {}).merges.size(), 0u);
  EXPECT_EQ(learn_merges(words, 1000, 0, {}).tokens.back(), "aaa");  // stops when pairs run out
}

TEST(TrainBpe, AnyBytesTrain) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>(i * 7919 % 256);
  text += text;
  const auto trained = train_on({text}, {.vocab_size = 400});
  const Tokenizer tokenizer = Tokenizer::from_json(trained.json, "bytes");
  EXPECT_GT(trained.merges, 0);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(TrainBpe, FaultsOfTheUser) {
  EXPECT_THROW(train_on({"a"}, {.vocab_size = 256}), ConfigError);
  EXPECT_THROW(train_on({"a"}, {.vocab_size = 300, .pattern = "bert"}), ConfigError);
  EXPECT_THROW(train_on({"a"}, {.vocab_size = 300, .special_tokens = {""}}), ConfigError);
  EXPECT_THROW(train_on({}, {.vocab_size = 300}), DataError);
  EXPECT_EQ(train_on({"x"}, {.vocab_size = 300, .special_tokens = {"a\"\n", "a\"\n"}}).vocab_size, 257);
}

}  // namespace
}  // namespace strata::data
