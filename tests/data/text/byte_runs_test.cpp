// Compares the results of the processor's vectors with one character at a time, at all sizes and alignments.
#include "data/text/byte_runs.h"

#include <gtest/gtest.h>

#include <random>

#include "data/text/characters.h"
#include "data/text/words.h"

namespace strata::data {
namespace {

// Texts of close fragments: numbers with separators, white space and marks beyond ASCII.
std::string random_text(std::mt19937& random, size_t pieces) {
  static constexpr std::string_view kPieces[] = {
      " ",
      " ",
      " ",
      "\n",
      "\t\t",
      "a",
      "The",
      "words",
      "ANOTHER",
      "x1",
      "12",
      "1,000.5",
      "...",
      "-",
      "!?",
      "\xC2\xA0",
      "caf\xC3\xA9",
      "\xCC\x81",
      " \xCC\x81 ",
      "\xE2\x80\x83",
      "\xCE\xA3",
      "\xEA\xB0\x80",
      "\xF0\x9F\x98\x80",
      "\x1F",
      "a-very-long-word-that-does-not-end-before-the-next-sixty-four-bytes-are-over-and-goes-on",
      "\xD9\xA3\xD9\xAB\xD9\xA4",
      "#",
      "\x7F",
      "@[`{"};
  std::string text;
  const size_t kinds = 1 + random() % std::size(kPieces);
  for (size_t i = 0; i < pieces; ++i) text += kPieces[random() % kinds];
  return text;
}

// The text at an address that no vector begins at, without readable bytes after it.
struct Placed {
  explicit Placed(const std::string& text, size_t offset) : bytes(offset + text.size()) {
    std::copy(text.begin(), text.end(), bytes.begin() + static_cast<ptrdiff_t>(offset));
    view = {bytes.data() + offset, text.size()};
  }
  std::vector<char> bytes;
  std::string_view view;
};

TEST(ByteRuns, EqualThoseOfEachByte) {
  std::mt19937 random(1);
  AsciiSet set;
  for (const char c : std::string_view(" \nae.\x7F")) set.add(static_cast<uint8_t>(c));
  std::vector<uint32_t> edges;
  std::vector<uint64_t> bits;
  for (size_t size = 0; size < 300; ++size) {
    const Placed placed(random_text(random, 300).substr(0, size), size % 7);
    const auto is_in = [&](char c) {
      return std::string_view(" \nae.\x7F").find(c) != std::string_view::npos;
    };
    std::vector<uint32_t> expected;
    for (uint32_t i = 0; i <= placed.view.size(); ++i) {
      const bool before = i == 0 || is_in(placed.view[i - 1]);
      const bool here = i == placed.view.size() || is_in(placed.view[i]);
      if (before != here) expected.push_back(i);
    }
    find_runs(placed.view, set, edges);
    EXPECT_EQ(edges, expected) << size;
    for (const bool wide : {false, true}) {
      const bool any = mark_bytes(placed.view, set, wide, bits);
      bool expected_any = false;
      for (size_t i = 0; i < placed.view.size(); ++i) {
        const bool marked = is_in(placed.view[i]) || (wide && (placed.view[i] & 0x80) != 0);
        expected_any |= marked;
        EXPECT_EQ(bits[i / 64] >> i % 64 & 1, marked) << i << " of " << size;
        EXPECT_EQ(any_marked(bits.data(), i, i + 1), marked);
      }
      EXPECT_EQ(any, expected_any);
      EXPECT_EQ(any_marked(bits.data(), 0, placed.view.size()), expected_any);
    }
  }
}

bool operator==(const Word& a, const Word& b) {
  return a.bytes.data() == b.bytes.data() && a.bytes.size() == b.bytes.size() &&
         a.code_points == b.code_points && a.symbol == b.symbol && a.alpha == b.alpha &&
         a.punctuation == b.punctuation && a.end_mark == b.end_mark;
}

TEST(WordSplitter, EqualsSplittingCharacterByCharacter) {
  std::mt19937 random(2);
  WordSplitter splitter;
  std::vector<Word> expected, words;
  for (size_t i = 0; i < 2000; ++i) {
    const Placed placed(random_text(random, i % 90), i % 5);
    expected.clear();
    words.clear();
    split_whitespace(placed.view, expected);
    splitter.split(placed.view, words);
    ASSERT_TRUE(std::equal(words.begin(), words.end(), expected.begin(), expected.end(),
                           [](const Word& a, const Word& b) { return a == b; }))
        << placed.view;
  }
}

TEST(Simplifier, EqualsSimplifyingCharacterByCharacter) {
  std::mt19937 random(3);
  Simplifier simplifier;
  std::string expected, simplified;
  for (size_t i = 0; i < 4000; ++i) {
    const Placed placed(random_text(random, i % 90), i % 5);
    simplify(placed.view, expected);
    simplifier.simplify(placed.view, simplified);
    ASSERT_EQ(simplified, expected) << placed.view;
  }
}

}  // namespace
}  // namespace strata::data
