#include "data/text/text_view.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "data/text/characters.h"
#include "data/text/lines.h"
#include "data/text/spacy_words.h"

#include "base/json.h"

namespace strata::data {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;

// The results of Python, datatrove and spaCy (tools/golden/make_text.py).
const std::vector<Json>& golden() {
  static const std::vector<Json> records = [] {
    std::vector<Json> out;
    std::ifstream file(STRATA_TEST_DATA "/text/texts.jsonl");
    for (std::string line; std::getline(file, line);) out.push_back(parse_json<Json>(line));
    return out;
  }();
  return records;
}

Strings strings(std::span<const Word> words) {
  Strings out;
  for (const Word& word : words) out.emplace_back(word.bytes);
  return out;
}
Strings strings(std::span<const std::string_view> lines) {
  return {lines.begin(), lines.end()};
}

void check(TextView& view, const Json& record) {
  const std::string text = record["text"];
  SCOPED_TRACE(dump_json(record["text"]));
  std::string copy = text;
  view.reset(copy);
  EXPECT_EQ(view.bytes(), text);
  EXPECT_EQ(view.code_points(), record["code_points"].get<int64_t>());
  EXPECT_EQ(strings(view.words(WordRule::kWhitespace)), record["split"].get<Strings>());
  EXPECT_EQ(strings(view.words(WordRule::kSpacy)), record["spacy"].get<Strings>());
  EXPECT_EQ(view.count_sentences(text, 1 << 30), record["sentences"].get<int64_t>());
  EXPECT_EQ(count_sentences(view.bytes(), view.words(WordRule::kSpacy), 1 << 30),
            record["sentences"].get<int64_t>());
  EXPECT_EQ(strings(view.split_lines()), record["newlines"].get<Strings>());
  EXPECT_EQ(strings(view.python_lines()), record["splitlines"].get<Strings>());
  EXPECT_EQ(view.simplified(), record["simplified"].get<std::string>());
  EXPECT_EQ(strings(view.simplified_words(WordRule::kSpacy)), record["simplified_spacy"].get<Strings>());
  EXPECT_EQ(strip(text), record["strip"].get<std::string>());
  std::string lowered;
  lower(text, lowered);
  EXPECT_EQ(lowered, record["lower"].get<std::string>());
  std::string symbols, alphas;
  for (const Word& word : view.words(WordRule::kWhitespace)) {
    symbols += word.symbol ? '1' : '0';
    alphas += word.alpha ? '1' : '0';
    EXPECT_EQ(word.code_points, count_code_points(word.bytes));
  }
  EXPECT_EQ(symbols, record["symbols"].get<std::string>());
  EXPECT_EQ(alphas, record["alphas"].get<std::string>());
}

TEST(TextView, AgreesWithPythonAndSpacy) {
  ASSERT_GT(golden().size(), 400u);
  TextView view;
  for (const Json& record : golden()) check(view, record);
  // The second time uses the words that the first one cached.
  for (auto record = golden().rbegin(); record != golden().rend(); ++record) check(view, *record);
}

TEST(TextView, NewViewsReturnTheSame) {
  for (size_t i = 0; i < golden().size(); i += 17) {
    TextView view;
    check(view, golden()[i]);
  }
}

TEST(TextView, OneTextAfterAnother) {
  TextView view;
  std::string text = "one two. Three";
  view.reset(text);
  EXPECT_EQ(view.words(WordRule::kWhitespace).size(), 3u);
  EXPECT_EQ(view.words(WordRule::kSpacy).size(), 4u);
  std::string other = "x\ny";
  view.replace(other);
  EXPECT_EQ(view.words(WordRule::kWhitespace).size(), 2u);
  EXPECT_EQ(view.words(WordRule::kSpacy).size(), 2u);
  EXPECT_EQ(view.split_lines().size(), 2u);
  std::string out;
  view.release(out);
  EXPECT_EQ(out, "x\ny");
  EXPECT_EQ(view.bytes(), "");
  EXPECT_EQ(view.words(WordRule::kWhitespace).size(), 0u);
}

// More runs than the cache holds, each seen again after it was forgotten.
TEST(SpacyWords, ForgettingChangesNothing) {
  SpacyWords words;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 70000; ++i) {
      const std::string middle = std::to_string(i) + "bbbbb";
      const std::string text = "(" + middle + " " + middle;
      std::vector<Word> out;
      words.split(text, out);
      ASSERT_EQ(strings(out), (Strings{"(", middle, middle}));
    }
  }
}

TEST(Lines, OtherLineEndsAtTheEdgeOfABlock) {
  for (const std::string end : {"\r", "\r\n", "\x0b", "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9", "\n"}) {
    for (size_t before : {0u, 1u, 2u, 4092u, 4093u, 4094u, 4095u, 4096u, 4097u, 8191u}) {
      for (size_t after : {0u, 1u, 2u, 3u, 5000u}) {
        const std::string left(before, 'x'), right(after, 'y');
        const std::string text = left + end + right;
        std::vector<std::string_view> lines;
        split_lines(text, lines);
        ASSERT_EQ(lines.size(), after == 0 ? 1u : 2u) << before << " " << after;
        EXPECT_EQ(lines[0], left);
        EXPECT_EQ(lines.back(), after == 0 ? left : right);
      }
    }
  }
}

TEST(Characters, CountsCodePoints) {
  for (size_t n = 0; n < 40; ++n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += i % 3 == 0 ? "x" : i % 3 == 1 ? "é" : "😀";
    EXPECT_EQ(count_code_points(text), static_cast<int64_t>(n));
  }
}

// Callers must not pass bytes that are not UTF-8; if they do, nothing outside the text is read.
TEST(TextView, IllFormedBytesStayInTheView) {
  for (const std::string& bytes :
       {std::string("\xE2"), std::string("a\xF0\x9F"), std::string("\xFF\xFE x\xC2"),
        std::string("\x80\x80\x80"), std::string("x\xE2\x80")}) {
    TextView view;
    std::string text(bytes);
    view.reset(text);
    size_t size = 0;
    for (const Word& word : view.words(WordRule::kSpacy)) size += word.bytes.size();
    EXPECT_LE(size, bytes.size());
    view.words(WordRule::kWhitespace);
    view.python_lines();
    view.simplified();
  }
}

}  // namespace
}  // namespace strata::data
