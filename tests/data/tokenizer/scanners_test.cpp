#include "data/tokenizer/scanners.h"

#include <gtest/gtest.h>

#include <random>

#include "data/tokenizer/golden.h"
#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

using Pieces = std::vector<std::string>;

Pieces scanned(KnownPattern pattern, std::string_view text) {
  std::vector<size_t> ends;
  scan_pieces(pattern, text, 0, text.size(), ends);
  Pieces out;
  size_t from = 0;
  for (const size_t end : ends) {
    out.emplace_back(text.substr(from, end - from));
    from = end;
  }
  return out;
}

Pieces matched(const Pattern& pattern, std::string_view text) {
  std::vector<Match> matches;
  find_matches(pattern, text, matches);
  Pieces out;
  for (const Match& match : matches)
    out.emplace_back(text.substr(match.at.begin, match.at.end - match.at.begin));
  return out;
}

constexpr const char* kNames[] = {"gpt2", "llama3", "qwen", "qwen3.5", "nanochat", "o200k", "tekken"};

TEST(Scanners, AgreeWithTheReference) {
  const auto splits = golden_cases()["splits"];
  for (const char* name : kNames) {
    const auto preset = split_preset(name);
    ASSERT_TRUE(preset) << name;
    const Pattern engine = Regex(pattern_regex(preset->pattern));
    ASSERT_GT(splits[name].size(), 50u);
    for (const auto& entry : splits[name]) {
      const auto text = entry[0].get<std::string>();
      EXPECT_EQ(scanned(preset->pattern, text), entry[1].get<Pieces>()) << name << " " << entry[0];
      EXPECT_EQ(matched(engine, text), entry[1].get<Pieces>()) << name << " by the engine " << entry[0];
    }
  }
}

// Any bytes: the scanner and the engine agree, pieces cover the text, and a scan may stop anywhere.
TEST(Scanners, AgreeWithTheEngineOnRandomBytes) {
  std::mt19937 random(3);
  const std::string_view pool[] = {"a",
                                   "letters",
                                   "LongerThanEight",
                                   "B",
                                   "'s",
                                   "'",
                                   " ",
                                   "\n",
                                   "\r",
                                   "1",
                                   "\u00e9",
                                   "\u0301",
                                   "\u65e5",
                                   "!",
                                   "/",
                                   "\xff",
                                   "\xe6\x97",
                                   "\t",
                                   "\u01c5",
                                   "\u3000",
                                   "\xf0\x9f\x98\x80",
                                   "\x80",
                                   std::string_view("\0", 1)};
  for (const char* name : kNames) {
    const KnownPattern pattern = split_preset(name)->pattern;
    const Pattern engine = Regex(pattern_regex(pattern));
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (unsigned n = random() % 20; n > 0; --n) text += pool[random() % std::size(pool)];
      const Pieces whole = scanned(pattern, text);
      EXPECT_EQ(whole, matched(engine, text)) << name;
      std::vector<size_t> ends;
      for (size_t from = 0; from < text.size();) from = scan_pieces(pattern, text, from, 1, ends);
      EXPECT_EQ(ends.size(), whole.size());
    }
  }
}

TEST(Scanners, KnowTheirRegularExpressions) {
  for (const char* name : kNames) {
    const KnownPattern pattern = split_preset(name)->pattern;
    EXPECT_EQ(recognise_pattern(pattern_regex(pattern)), pattern);
  }
  EXPECT_EQ(recognise_pattern("\\s+"), std::nullopt);
  EXPECT_EQ(split_preset("bert"), std::nullopt);
}

// Unicode 16.0, as the reference library counts.
TEST(Unicode, ClassesHaveTheReferenceCounts) {
  const std::pair<const char*, int64_t> expected[] = {{"L", 141028}, {"N", 1911}, {"M", 2501}, {"Lu", 1858},
                                                      {"Ll", 2258},  {"Lt", 31},  {"Lm", 404}, {"Lo", 136477},
                                                      {"P", 855},    {"S", 8514}, {"Nd", 760}, {"s", 25}};
  for (const auto& [name, count] : expected) {
    int64_t found = 0;
    const auto ranges = property_ranges(name);
    ASSERT_TRUE(ranges) << name;
    for (const CodePointRange& range : *ranges) found += range.last - range.first + 1;
    EXPECT_EQ(found, count) << name;
  }
  EXPECT_EQ(property_ranges("Klingon"), std::nullopt);
}

TEST(Unicode, IllFormedBytesAreSeparateSymbols) {
  for (const std::string_view bytes :
       {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe6\x97", "\xff", "\x80"}) {
    const CodePoint c = decode_code_point(bytes.data(), bytes.data() + bytes.size());
    EXPECT_EQ(c.size, 1u);
    EXPECT_EQ(c.value, kInvalidByteBase + static_cast<uint8_t>(bytes[0]));
    EXPECT_EQ(class_table()[c.value], 0);
    EXPECT_FALSE(is_valid_utf8(bytes));
  }
  EXPECT_EQ(replace_invalid_utf8("a\xe6\x97"
                                 "b\xff\xf0\x9f\x98"),
            "a\uFFFD"
            "b\uFFFD\uFFFD");
}

}  // namespace
}  // namespace strata::data
