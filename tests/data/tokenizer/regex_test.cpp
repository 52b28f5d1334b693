#include "data/tokenizer/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace strata::data {
namespace {

// The first match, or "-" where there is none.
std::string first(std::string_view pattern, std::string_view text) {
  size_t begin = 0;
  size_t end = 0;
  if (!Regex(pattern).find(text, 0, begin, end)) return "-";
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

TEST(Regex, RefusesByName) {
  for (const char* pattern :
       {"(a",          "a)",    "[a",          "*a",       "a{2,1}",   "(?<name>a)", "(?m:a)",
        "\\R",         "\\1",   "[[:alpha:]]", "\\p{Foo}", "(?<=ab)c", "(?:a*)*",    "(?i:ss)",
        "(?i:\u00e9)", "[b-a]", "\\x{110000}", "a{1001}",  "\\",       "[a-\\s]"}) {
    try {
      Regex regex(pattern);
      ADD_FAILURE() << pattern << " was accepted";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("not supported"), std::string::npos) << error.what();
    }
  }
}

TEST(Regex, LongRunsTakeLinearSpaceAndNoStack) {
  const std::string text(300000, 'a');
  EXPECT_EQ(first("(?:a|b)+", text).size(), text.size());
  EXPECT_EQ(first("\\p{L}+(?!a)", text).size(), text.size());
}

}  // namespace
}  // namespace strata::data
