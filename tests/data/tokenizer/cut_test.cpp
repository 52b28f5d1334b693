// The parts of a text that is cut at the places of find_cut encode to the ids of the whole text.
#include "data/tokenizer/cut.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <random>

#include "data/tokenizer/golden.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/scanners.h"

namespace strata::data {
namespace {

// Texts of characters that matter to patterns, normalizers and added tokens, with enough words for cuts.
std::string nasty_text(std::mt19937& random, int fragments) {
  static const std::string_view kFragments[] = {"a",
                                                "Word",
                                                "WORD",
                                                "mIxEd",
                                                "\u00e9",
                                                "e\u0301",
                                                "\u0301",
                                                "\u0323",
                                                "\u01c5",
                                                "\u02b0",
                                                "\u0130",
                                                "\u017f",
                                                "\u212b",
                                                "\u2126",
                                                "\u0958",
                                                "\u0915\u093c",
                                                "\u1100\u1161\u11a8",
                                                "\uac00",
                                                "\u0628\u0650",
                                                "\u65e5\u672c",
                                                "\u3042",
                                                "\uf900",
                                                "\ufb1d",
                                                "1",
                                                "23",
                                                "456",
                                                "7890",
                                                "\u0662",
                                                "\u2167",
                                                "\u00bd",
                                                "'",
                                                "'s",
                                                "'S",
                                                "'LL",
                                                "'re",
                                                "'\u017f",
                                                "\u2019s",
                                                "!",
                                                "?!",
                                                "\"",
                                                "/",
                                                "//",
                                                "(",
                                                "\u3002",
                                                "\u00b4",
                                                "\u1fbd",
                                                "=",
                                                "\u20ac",
                                                "\xf0\x9f\x98\x80",
                                                "\u200d",
                                                "\ufe0f",
                                                "\ufeff",
                                                "\u00a0",
                                                "\u2003",
                                                "\u2028",
                                                "\u3000",
                                                "\x85",
                                                "\u0085",
                                                "\t",
                                                "\r",
                                                "\r\n",
                                                "\n",
                                                "\n\n",
                                                "  ",
                                                "    ",
                                                " \n",
                                                "\n ",
                                                "\xff",
                                                "\xc3",
                                                "\xe6\x97",
                                                "\xed\xa0\x80",
                                                "\x80",
                                                "<|endoftext|>",
                                                "<|end",
                                                "<w>",
                                                "\u00dcber",
                                                "U\u0308ber",
                                                "_"};
  static const std::string_view kLinks[] = {" ", " ", "\n", "", "", "  "};
  std::string text;
  for (int i = 0; i < fragments; ++i) {
    text += kFragments[random() % std::size(kFragments)];
    text += kLinks[random() % std::size(kLinks)];
  }
  // Bytes of U+0000 and of nothing at all, too.
  if (random() % 4 == 0) text[random() % text.size()] = static_cast<char>(random() % 256);
  return text;
}

std::vector<size_t> all_cuts(std::string_view text) {
  std::vector<size_t> cuts;
  for (size_t at = find_cut(text, 1); at < text.size(); at = find_cut(text, at + 1)) cuts.push_back(at);
  return cuts;
}

// Both kinds of places, and places that do not qualify: other white space, runs of it, before digits and
// signs, at the ends of the text.
TEST(Cut, Places) {
  EXPECT_EQ(all_cuts("one two\nthree. four\n\nfive  six\tseven 8 nine\r\nten"),
            (std::vector<size_t>{3, 8, 14, 38}));
  EXPECT_EQ(all_cuts(" a"), (std::vector<size_t>{}));
  EXPECT_EQ(all_cuts("\na"), (std::vector<size_t>{}));
  EXPECT_EQ(all_cuts("a "), (std::vector<size_t>{}));
  EXPECT_EQ(all_cuts(""), (std::vector<size_t>{}));
  EXPECT_EQ(all_cuts("\u3000 a \u65e5\u00a0 b\u2028\nc"), (std::vector<size_t>{5}));
  EXPECT_EQ(all_cuts("\xff b \xff"), (std::vector<size_t>{}))
      << "a byte that is not a character is not a place";
  EXPECT_EQ(find_cut("aa bb cc", 3), 5u);
  EXPECT_EQ(find_cut("aa bb cc", 100), 8u);
}

TEST(Cut, EveryPatternStartsAPieceAtACut) {
  std::mt19937 random(5);
  int64_t cuts = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = nasty_text(random, 1 + static_cast<int>(random() % 24));
    for (const auto pattern :
         {KnownPattern::kGpt2, KnownPattern::kCl100k, KnownPattern::kQwen2, KnownPattern::kQwen35,
          KnownPattern::kNanochat2, KnownPattern::kO200k, KnownPattern::kTekken}) {
      std::vector<size_t> whole;
      scan_pieces(pattern, text, 0, text.size(), whole);
      for (const size_t cut : all_cuts(text)) {
        ++cuts;
        std::vector<size_t> parts, right;
        scan_pieces(pattern, std::string_view(text).substr(0, cut), 0, text.size(), parts);
        scan_pieces(pattern, std::string_view(text).substr(cut), 0, text.size(), right);
        for (const size_t end : right) parts.push_back(cut + end);
        ASSERT_EQ(parts, whole) << pattern_regex(pattern) << "\n" << text << "\ncut at " << cut;
      }
    }
  }
  EXPECT_GT(cuts, 20000);
}

TEST(Cut, CompositionDoesNotReachAcross) {
  std::mt19937 random(6);
  const Normalizer nfc = Normalizer::nfc();
  int64_t changed = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = nasty_text(random, 1 + static_cast<int>(random() % 12));
    std::string storage;
    const std::string whole(nfc.apply(text, storage));
    for (const size_t cut : all_cuts(text)) {
      std::string parts(nfc.apply(std::string_view(text).substr(0, cut), storage));
      parts += nfc.apply(std::string_view(text).substr(cut), storage);
      ASSERT_EQ(parts, whole) << text << "\ncut at " << cut;
      changed += whole != text;
    }
  }
  EXPECT_GT(changed, 1000);
}

// The golden tokenizer, with added tokens that do not strip the white space around them.
Tokenizer without_stripping(const std::string& name) {
  auto json = parse_json<nlohmann::ordered_json>(read_file(golden_path(name + ".json")));
  for (auto& token : json["added_tokens"]) token["lstrip"] = token["rstrip"] = false;
  return Tokenizer::from_json(dump_json(json), name);
}

TEST(Cut, PartsYieldTheIdsOfTheWhole) {
  for (const char* name : {"gpt2", "llama3", "o200k", "qwen"}) {
    const Tokenizer tokenizer = without_stripping(name);
    std::mt19937 random(7);
    int64_t cuts = 0;
    for (int round = 0; round < 300; ++round) {
      const std::string text = nasty_text(random, 40);
      const std::vector<int32_t> whole = tokenizer.encode(text);
      std::vector<int32_t> every;  // cut wherever it can be
      size_t begin = 0;
      while (begin < text.size()) {
        const size_t end = tokenizer.next_cut(text, begin + 1);
        tokenizer.encode(std::string_view(text).substr(begin, end - begin), every);
        begin = end;
        ++cuts;
      }
      ASSERT_EQ(every, whole) << name << "\n" << text;
    }
    EXPECT_GT(cuts, 300 * 3) << name;
  }
}

// One part, if steps may look across any place, or tokens strip or contain white space.
TEST(Cut, TextWithoutAKnownPlaceIsNotSplit) {
  const std::string text = "one two three\nfour five";
  for (const char* name : {"starcoder", "falcon", "deepseek", "prefix", "engine", "llama2"}) {
    const Tokenizer tokenizer = without_stripping(name);
    EXPECT_EQ(tokenizer.next_cut(text, 1), text.size()) << name;
  }
  EXPECT_EQ(golden_tokenizer("gpt2").next_cut(text, 1), text.size()) << "<l> and <r> take white space";
  EXPECT_EQ(without_stripping("gpt2").next_cut(text, 1), 3u);
  const auto crosses = [](const std::string& content, bool single_word = false) {
    AddedToken token;
    token.content = content;
    token.single_word = single_word;
    return may_cross_cut(token);
  };
  EXPECT_FALSE(crosses("word") || crosses("    ") || crosses("\n\n") || crosses("word", true));
  EXPECT_TRUE(crosses("two words") && crosses("word ") && crosses("\nword") && crosses("  ", true));
}

}  // namespace
}  // namespace strata::data
