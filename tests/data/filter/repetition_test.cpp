#include "data/filter/repetition.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "data/text/words.h"

namespace strata::data {
namespace {

// The definitions, word for word: texts in tables of strings.
int64_t plain_top(const std::vector<Word>& words, size_t n) {
  std::map<std::string, int64_t> counts;
  std::vector<std::string> order;
  for (size_t i = 0; i + n <= words.size(); ++i) {
    std::string gram(words[i].bytes);
    for (size_t k = 1; k < n; ++k) gram += " " + std::string(words[i + k].bytes);
    if (counts[gram]++ == 0) order.push_back(gram);
  }
  std::string best;
  int64_t most = 0;
  for (const std::string& gram : order) {
    if (counts[gram] > most) {
      most = counts[gram];
      best = gram;
    }
  }
  return static_cast<int64_t>(best.size()) * most;
}

int64_t plain_duplicated(const std::vector<Word>& words, size_t n) {
  std::set<std::string> seen;
  int64_t out = 0;
  for (size_t i = 0; i + n <= words.size();) {
    std::string gram;
    for (size_t k = 0; k < n; ++k) gram += words[i + k].bytes;
    if (seen.insert(gram).second) {
      ++i;
    } else {
      out += static_cast<int64_t>(gram.size());
      i += n;
    }
  }
  return out;
}

TEST(Repetition, EqualsTheDefinition) {
  std::mt19937 random(1);
  RepetitionCounter counter;
  for (int round = 0; round < 150; ++round) {
    // Few words of one letter up to many longer ones, so that joined words meet by different cuts too.
    const size_t vocabulary = 1 + random() % (round % 4 == 0 ? 4 : 200), size = random() % 300;
    std::string text;
    for (size_t i = 0; i < size; ++i) {
      uint32_t word = random() % vocabulary;
      std::string letters(1 + word % (round % 3 == 0 ? 3 : 9), 'a');
      for (char& letter : letters) {
        letter = static_cast<char>('a' + word % 5);
        word = word / 5 + word % 3;
      }
      text += letters + " ";
      if (random() % 40 == 0) text += text.substr(text.size() / 2);
    }
    std::vector<Word> words;
    split_whitespace(text, words);
    counter.set_words(words);
    for (size_t n : {2u, 3u, 4u, 7u})
      EXPECT_EQ(counter.top_n_gram(n), plain_top(words, n)) << n << " " << text;
    for (size_t n = 5; n <= 10; ++n)
      EXPECT_EQ(counter.duplicated_n_grams(n), plain_duplicated(words, n)) << n << " " << text;
  }
}

TEST(Repetition, Duplicates) {
  RepetitionCounter counter;
  const std::vector<std::string_view> items = {"a", "bé", "a", "", "bé", "bé", ""};
  const Duplicates found = counter.count_duplicates(items);
  EXPECT_EQ(found.items, 4);
  EXPECT_EQ(found.code_points, 5);
  EXPECT_EQ(counter.count_duplicates({}).items, 0);
}

}  // namespace
}  // namespace strata::data
