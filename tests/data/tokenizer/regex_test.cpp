#include "data/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/golden.h"
#include "data/tokenizer/oniguruma.h"

namespace strata::data {
namespace {

// The first match, or "-" if there is none.
std::string first(std::string_view pattern, std::string_view text) {
  size_t begin = 0;
  size_t end = 0;
  Regex::Budget budget(text);
  if (!Regex(pattern).find(text, 0, begin, end, budget)) return "-";
  return std::string(text.substr(begin, end - begin));
}

TEST(Regex, Matches) {
  EXPECT_EQ(first("b+", "abbbc"), "bbb");
  EXPECT_EQ(first("b+?", "abbbc"), "b");
  EXPECT_EQ(first("ab|abc", "abc"), "ab");
  EXPECT_EQ(first("(?:ab|a)bc", "abc"), "abc");
  EXPECT_EQ(first("(?>ab|a)bc", "abc"), "-");
  EXPECT_EQ(first("a++a", "aaa"), "-");
  EXPECT_EQ(first("(?:ab)*+ab", "ababab"), "-");
  EXPECT_EQ(first("(?:ab){1,2}", "ababab"), "abab");
  EXPECT_EQ(first("(?:ab){2,}?c", "abababc"), "abababc");
  EXPECT_EQ(first("a{,2}b", "aaab"), "aab");
  EXPECT_EQ(first("a{x}", "a{x}"), "a{x}");
  EXPECT_EQ(first("x(?=yz)", "xy xyz"), "x");
  EXPECT_EQ(first("x(?!yz).", "xyz xyq"), "xy");
  EXPECT_EQ(first("(?<=a)b", "b ab"), "b");
  EXPECT_EQ(first("(?<![a\\d])b", "ab1b b"), "b");
}

TEST(Regex, ClassesAndCase) {
  EXPECT_EQ(first("[^\\s\\p{L}]+", "ab 12!c"), "12!");
  EXPECT_EQ(first("[a-z&&[^aeiou]]+", "aebcd"), "bcd");
  EXPECT_EQ(first("[\\]\\-x]+", "a]-x"), "]-x");
  EXPECT_EQ(first("[a-]+", "b-a-"), "-a-");
  EXPECT_EQ(first("\\P{L}", "ab\xff"), "\xff");
  EXPECT_EQ(first("\\p{^L}", "ab1"), "1");
  EXPECT_EQ(first(".", "\n\u65e5"), "\u65e5");
  EXPECT_EQ(first("(?i:'s)", "'\u017f"), "'\u017f");
  EXPECT_EQ(first("(?i)aB", "xAb"), "Ab");
  EXPECT_EQ(first("(?i:a)b", "AB Ab"), "Ab");
  EXPECT_EQ(first("\\x41\\x{42}\\u0043", "ABC"), "ABC");
  EXPECT_EQ(first("\\w+", "a\u00b2\u00bdb"), "a\u00b2\u00bdb");
  EXPECT_EQ(first("[\\w]+", "a\u00b2\u00bdb"), "a");
  EXPECT_EQ(first("\\p{Han}+", "a\u65e5\u672c"), "\u65e5\u672c");
}

TEST(Regex, Assertions) {
  EXPECT_EQ(first("^b", "a\nb"), "b");
  EXPECT_EQ(first("a$", "a\nb"), "a");
  EXPECT_EQ(first("\\Ab", "a\nb"), "-");
  EXPECT_EQ(first("b\\z", "b\n"), "-");
  EXPECT_EQ(first("b\\Z", "b\n"), "b");
  EXPECT_EQ(first("\\bb", "ab b"), "b");
  EXPECT_EQ(first("\\Bb", "b ab"), "b");
}

TEST(Regex, RejectsUnsupportedSyntaxByName) {
  for (const char* pattern :
       {"(a",          "a)",      "[a",           "*a",         "a{2,1}",   "(?<name>a)", "(?m:a)",
        "\\R",         "\\1",     "[[:alpha:]]",  "\\p{Foo}",   "(?<=ab)c", "(?:a*)*",    "(?i:ss)",
        "(?i:\u00e9)", "[b-a]",   "\\x{110000}",  "a{1001}",    "\\",       "[a-\\s]",    "a|{2}b",
        "\\x82",       "[\\d-z]", "(?i)[\\p{L}]", "(?i)[^\\w]", "(?i)[\\S]"}) {
    try {
      Regex regex(pattern);
      ADD_FAILURE() << pattern << " was accepted";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("not supported"), std::string::npos) << error.what();
    }
  }
}

// Each as begin-end, of our engine or of Oniguruma.
std::string places(const std::vector<Piece>& matches) {
  std::string out;
  for (const Piece& match : matches) out += fmt::format("{}-{} ", match.begin, match.end);
  return out;
}

std::string our_places(std::string_view pattern, std::string_view text) {
  std::vector<Match> pieces;
  find_matches(Regex(pattern), text, pieces);
  std::vector<Piece> matches;
  for (const Match& piece : pieces) {
    if (piece.is_match) matches.push_back(piece.at);
  }
  return places(matches);
}

std::string oniguruma_places(std::string_view pattern, std::string_view text) {
  const auto matches = oniguruma_matches(pattern, text);
  return matches ? places(*matches) : "refused";
}

// The patterns of published tokenizers, and each part of the syntax separately.
std::vector<std::string> expressions() {
  std::vector<std::string> all;
  for (const char* name : {"gpt2", "llama3", "qwen", "qwen3.5", "nanochat", "o200k", "tekken"})
    all.emplace_back(pattern_regex(split_preset(name)->pattern));
  for (
      const char* pattern :
      {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
       R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)",
       " ?[^(\\s|[.,!?\u2026\u3002\uff0c])]+", R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)",
       R"(\w+|[^\w\s]+)", R"([\p{Lu}&&[^\p{Han}]]+|\p{^L})", R"(\b\w|\B.)", R"(^.?|.$)", R"(\A.|.\z|\s\Z)",
       R"(\d+?\D??)", R"((?>\p{L}+)\h|\H*+)", R"((?<!\p{L})\p{L}(?=\p{Ll})|(?<=['!])\S)",
       R"((?:ab|a)*+b?|x*)", R"((?i:[k-s]+|the))", R"((?i)[+-z&&[^aeiou]]+|[^[S-T]\d]+|[^e\s\u2026]+)",
       R"(\p{Cyrillic}+|\p{Z}|\p{C}|\P{S}{,3}?)", "a*", R"([^\x00-\x{10FFFF}]|\u0061)"}) {
    all.emplace_back(pattern);
  }
  return all;
}

TEST(Regex, AgreesWithOniguruma) {
  const auto texts =
      parse_json<nlohmann::json>(read_file(std::string(STRATA_TEST_DATA) + "/tokenizer/kinds/texts.json"));
  std::vector<std::string> all = texts.get<std::vector<std::string>>();
  const auto cases = golden_cases();
  for (const auto& entry : cases["splits"]["gpt2"]) all.push_back(entry[0].get<std::string>());
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::string& whole = all[random() % all.size()];
    std::string damaged = whole;
    for (char& c : damaged) {
      if (random() % 8 == 0) c = static_cast<char>(random());
    }
    all.push_back(std::move(damaged));
  }
  for (const std::string& pattern : expressions()) {
    for (const std::string& text : all)
      ASSERT_EQ(our_places(pattern, text), oniguruma_places(pattern, text))
          << pattern << " in " << testing::PrintToString(text);
  }
}

TEST(Regex, IgnoresEmptyMatchesAfterAMatch) {
  EXPECT_EQ(our_places("a*", "baac"), "0-0 1-3 4-4 ");
  EXPECT_EQ(our_places("", "ab"), "0-0 1-1 2-2 ");
  EXPECT_EQ(our_places("^", ""), "");
}

TEST(Regex, LimitsBacktracking) {
  EXPECT_THROW(first("(?:a|a?b?a)+c", std::string(60, 'a') + "b"), DataError);
  EXPECT_THROW(first("(a|aa)+$", std::string(60, 'a') + "b"), DataError);
  // No single search takes long.
  std::string many;
  for (int i = 0; i < 100; ++i) many += std::string(26, 'a') + "bc";
  EXPECT_EQ(first("(?:a|aa)+c|b", many), "b");
  EXPECT_THROW(our_places("(?:a|aa)+c|b", many), DataError);
}

TEST(Regex, LongRunsTakeLinearSpaceAndNoStack) {
  const std::string text(300000, 'a');
  EXPECT_EQ(first("(?:a|b)+", text).size(), text.size());
  EXPECT_EQ(first("\\p{L}+(?!a)", text).size(), text.size());
}

}  // namespace
}  // namespace strata::data
