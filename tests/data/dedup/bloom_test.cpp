// Compares the Bloom filter with exact sets.
#include <cmath>
#include <set>

#include "base/error.h"
#include "data/dedup/bloom.h"
#include "data/dedup/corpus.h"

namespace strata::data::dedup {
namespace {

TEST(BloomDedup, DropsEarlierText) {
  Numbers numbers(1);
  std::vector<std::string> texts;
  for (int i = 0; i < 2000; ++i) texts.push_back(random_words(numbers, 1 + numbers.below(3), 12));
  std::vector<Outcome> expected(texts.size());
  std::set<std::string> seen;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!seen.insert(texts[i]).second) expected[i] = {true, "bloom_duplicate"};
  }
  const auto stage = make_stage("bloom_dedup", {{"false_positive_rate", 1e-12}});
  for (const auto& parts : std::vector<std::vector<size_t>>{{}, {0, 500, 1, 1499, 0}}) {
    for (const int64_t memory : {int64_t{0}, int64_t{1} << 30}) {
      EXPECT_EQ(run_stage(*stage, texts, {parts, memory}), expected);
    }
  }
}

// datatrove's rule with an exact set instead of the filter.
TEST(BloomDedup, CountsKnownNgrams) {
  Numbers numbers(2);
  std::vector<std::string> texts = {"", "short", "a b c"};
  for (int i = 0; i < 300; ++i) {
    std::string text = random_words(numbers, 5 + numbers.below(20), 400);
    if (i > 0 && numbers.below(2) == 0)
      text = texts[numbers.below(static_cast<uint32_t>(texts.size()))] + " " + text.substr(0, 12);
    texts.push_back(text);
  }
  std::vector<Outcome> expected(texts.size());
  std::set<std::vector<std::string>> seen;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<std::string> words;
    for (size_t at = 0; at < texts[i].size();) {
      const size_t end = std::min(texts[i].find(' ', at), texts[i].size());
      if (end > at) words.push_back(texts[i].substr(at, end - at));
      at = end + 1;
    }
    std::vector<std::vector<std::string>> grams;
    for (size_t k = 0; k + 3 <= words.size(); ++k) grams.push_back({words[k], words[k + 1], words[k + 2]});
    const auto known =
        std::count_if(grams.begin(), grams.end(), [&](const auto& g) { return seen.contains(g); });
    if (!grams.empty() && static_cast<double>(known) / static_cast<double>(grams.size()) > 0.6) {
      expected[i] = {true, "bloom_duplicate"};
    }
    seen.insert(grams.begin(), grams.end());
  }
  const auto stage = make_stage("bloom_dedup", {{"by", std::string("ngrams")},
                                                {"n_grams", int64_t{3}},
                                                {"duplicate_threshold", 0.6},
                                                {"false_positive_rate", 1e-12}});
  EXPECT_EQ(run_stage(*stage, texts), expected);
  EXPECT_EQ(run_stage(*stage, texts, {{100, 203}, 0}), expected);
  EXPECT_GT(std::count_if(expected.begin(), expected.end(), [](const Outcome& o) { return o.drop; }), 20);
}

TEST(BloomDedup, HasThePromisedErrorRate) {
  std::vector<std::string> texts;
  for (int i = 0; i < 20000; ++i) texts.push_back(std::to_string(i));
  const auto outcomes = run_stage(*make_stage("bloom_dedup", {{"false_positive_rate", 0.02}}), texts);
  // The rate rises from 0 to 0.02 while the filter fills; it reaches half of that late.
  const auto wrong = std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.drop; });
  EXPECT_GT(wrong, 20);
  EXPECT_LT(wrong, 200);
}

TEST(BloomDedup, SizeAndInvalidOptions) {
  EXPECT_EQ(bloom_size(1000, 0.01).bits,
            9586u);  // 9.585 bits an element and 7 probes, as everywhere published
  EXPECT_EQ(bloom_size(1000, 0.01).probes, 7);
  EXPECT_GE(bloom_size(0, 0.5).bits, 1u);
  EXPECT_THROW(make_stage("bloom_dedup", {{"false_positive_rate", 0.0}}), ConfigError);
  EXPECT_THROW(make_stage("bloom_dedup", {{"by", std::string("line")}}), ConfigError);
  EXPECT_TRUE(run_stage(*make_stage("bloom_dedup"), {}).empty());
}

}  // namespace
}  // namespace strata::data::dedup
