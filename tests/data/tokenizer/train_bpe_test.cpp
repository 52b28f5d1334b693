#include "data/tokenizer/train_bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

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
TEST(TrainBpe, AgreesWithTheReferenceFile) {
  const std::string corpus = read_file(golden_path("corpus.txt"));
  for (const char* pattern : {"gpt2", "llama3", "qwen"}) {
    const auto trained = train_on({corpus}, {.vocab_size = 520, .pattern = pattern});
    EXPECT_EQ(trained.json, read_file(golden_path(std::string(pattern) + "_trained.json"))) << pattern;
    EXPECT_EQ(trained.vocab_size, 520);
  }
}

TEST(TrainBpe, TokensAroundATextEqualThoseOfEncoding) {
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

TEST(TrainBpe, DoesNotDependOnThreadsOrFiles) {
  const std::string corpus = read_file(golden_path("corpus.txt"));
  std::string large;
  while (large.size() < (size_t{3} << 20)) large += corpus;
  const TrainOptions options{.vocab_size = 600};
  const int threads = compute_threads();
  set_compute_threads(1);
  const auto one = train_on({large}, options);
  set_compute_threads(3);
  const auto three = train_on({large}, options);
  std::vector<std::string_view> lines;  // each line a separate text
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
TEST(TrainBpe, CountsMayExceed31Bits) {
  WordCounts words;
  words.add("the", int64_t{1} << 32);
  words.add("of", (int64_t{1} << 32) + 1);
  const auto vocabulary = learn_merges(words, 259, 2, {});
  ASSERT_EQ(vocabulary.merges.size(), 3u);
  EXPECT_EQ(vocabulary.tokens[256], "of");
  EXPECT_EQ(vocabulary.tokens[257], "he");  // ties: the smaller pair of ids, h before t
}

// Counts all pairs again for each merge.
std::vector<std::pair<int32_t, int32_t>> plain_merges(
    std::vector<std::pair<std::vector<int32_t>, int64_t>> words, std::vector<std::string> tokens, size_t n) {
  std::vector<std::pair<int32_t, int32_t>> merges;
  while (merges.size() < n) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& [symbols, count] : words) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    }
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto [left, right] = best->first;
    tokens.push_back(tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)]);
    merges.push_back(best->first);
    for (auto& word : words) {
      std::vector<int32_t>& symbols = word.first;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] = static_cast<int32_t>(tokens.size()) - 1;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

// Counts from 1 to 10,000, so that the floor below which pairs wait is lowered again and again.
TEST(TrainBpe, AgreesWithASimpleTrainer) {
  std::mt19937 random(11);
  const std::vector<std::string> bytes = learn_merges({}, 257, 0, {}).tokens;
  for (int round = 0; round < 10; ++round) {
    std::map<std::string, int64_t> distinct;
    for (int i = 0; i < 200; ++i) {
      std::string word;
      for (char c = 'a'; c <= 't'; ++c) {
        if (random() % 4 == 0) word += c;  // no letter twice: no token comes about in two ways that overlap
      }
      if (!word.empty()) distinct[word] = 1 + static_cast<int64_t>(10000 / (1 + random() % 10000));
    }
    WordCounts counts;
    std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
    for (const auto& [word, count] : distinct) {
      counts.add(word, count);
      std::vector<int32_t> ids;
      for (const char c : word) {
        ids.push_back(
            static_cast<int32_t>(std::find(bytes.begin(), bytes.end(), std::string(1, c)) - bytes.begin()));
      }
      words.emplace_back(ids, count);
    }
    EXPECT_EQ(learn_merges(counts, 256 + 80, 0, {}).merges, plain_merges(words, bytes, 80)) << round;
  }
}

TEST(WordCounts, AgreeWithAMap) {
  std::mt19937 random(12);
  std::string text;
  for (int i = 0; i < 400000; ++i) text += static_cast<char>('a' + random() % 20);
  WordCounts direct, queued, both;
  std::map<std::string, int64_t> expected;
  WordQueue queue(queued);
  for (size_t at = 0; at < text.size();) {
    const std::string_view word = std::string_view(text).substr(at, 1 + random() % 20);
    direct.add(word);
    queue.add_inside(word, text.data() + text.size());
    ++expected[std::string(word)];
    at += word.size();
  }
  queue.flush();
  both.add(direct);
  both.add(queued);
  const auto all = [](const WordCounts& counts) {
    std::map<std::string, int64_t> out;
    counts.for_each([&](std::string_view word, int64_t count) { out[std::string(word)] += count; });
    EXPECT_EQ(out.size(), counts.size());
    return out;
  };
  EXPECT_GT(expected.size(), size_t{1} << 14);  // the tables have grown
  EXPECT_EQ(all(direct), expected);
  EXPECT_EQ(all(queued), expected);
  for (auto& word : expected) word.second *= 2;
  EXPECT_EQ(all(both), expected);
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

TEST(TrainBpe, ErrorsOfTheUser) {
  EXPECT_THROW(train_on({"a"}, {.vocab_size = 256}), ConfigError);
  EXPECT_THROW(train_on({"a"}, {.vocab_size = 300, .pattern = "bert"}), ConfigError);
  EXPECT_THROW(train_on({"a"}, {.vocab_size = 300, .special_tokens = {""}}), ConfigError);
  EXPECT_THROW(train_on({}, {.vocab_size = 300}), DataError);
  EXPECT_EQ(train_on({"x"}, {.vocab_size = 300, .special_tokens = {"a\"\n", "a\"\n"}}).vocab_size, 257);
}

}  // namespace
}  // namespace strata::data
