// Compares repeated spans with the rule: looks up every window among all earlier windows.
#include "data/dedup/substring.h"

#include <map>
#include <set>

#include "base/error.h"
#include "data/dedup/anchors.h"
#include "data/dedup/corpus.h"

namespace strata::data::dedup {
namespace {

std::vector<Outcome> look_up_all_windows(const std::vector<std::string>& texts, size_t window) {
  std::map<std::string, std::pair<size_t, size_t>> first;
  std::vector<Outcome> outcomes(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<bool> cut(texts[i].size() + 1);
    for (size_t at = 0; at + window <= texts[i].size(); ++at) {
      const auto [found, is_new] = first.emplace(texts[i].substr(at, window), std::pair{i, at});
      if (is_new || (found->second.first == i && found->second.second + window > at)) continue;
      std::fill(cut.begin() + static_cast<int64_t>(at), cut.begin() + static_cast<int64_t>(at + window),
                true);
    }
    for (size_t begin = 0; begin < texts[i].size(); ++begin) {
      size_t end = begin;
      while (cut[end]) ++end;
      const TextSpan span = whole_words(texts[i], {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      if (end > begin && span.begin < span.end) outcomes[i].cut.push_back(span);
      begin = end;
    }
    if (outcomes[i].cut.empty()) continue;
    const std::string left = apply_outcomes({texts[i]}, {outcomes[i]})[0];
    if (left.find_first_not_of(" \n") == std::string::npos) outcomes[i] = {true, "no_text_left"};
  }
  return outcomes;
}

void expect_rule(const std::vector<std::string>& texts, int64_t window) {
  const auto expected = look_up_all_windows(texts, static_cast<size_t>(window));
  const auto stage = make_stage("substring_dedup", {{"length_threshold", window}});
  for (const auto& parts : ways_to_cut(texts.size())) {
    // Without memory the windows of all groups are sorted externally; with some memory only large groups.
    for (const int64_t memory : {int64_t{0}, int64_t{4096}, int64_t{1} << 30}) {
      EXPECT_EQ(run_stage(*stage, texts, {parts, memory}), expected) << window << " " << memory;
    }
  }
}

TEST(SubstringDedup, EqualsTheRuleOnRandomTexts) {
  Numbers numbers(1);
  std::vector<std::string> texts;
  std::string all;
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (uint32_t piece = numbers.below(5); piece > 0; --piece) {
      if (!all.empty() && numbers.below(2) == 0) {
        const size_t at = numbers.below(static_cast<uint32_t>(all.size()));
        text += all.substr(at, 1 + numbers.below(120));
      } else {
        text += random_words(numbers, 1 + numbers.below(20), 3000);
      }
      if (numbers.below(3) == 0) text += "\n";
    }
    all += text;
    texts.push_back(text);
  }
  for (const int64_t window : {16, 17, 40, 100}) expect_rule(texts, window);
}

// Runs of one character, short periods, equal documents: every k-gram ties with another.
TEST(SubstringDedup, EqualsTheRuleOnPeriodicTexts) {
  std::vector<std::string> texts = {std::string(200, '-'), std::string(90, '-'), "", "x"};
  for (const size_t period : {2u, 3u, 7u, 19u, 40u}) {
    std::string text;
    while (text.size() < 300)
      text += std::string("ab cdefghijkl mnopqrstuvwxyz0123456789 ABCDEF").substr(0, period);
    texts.push_back(text);
    texts.push_back("before " + text.substr(0, 120) + " after");
  }
  for (const int64_t window : {16, 33}) expect_rule(texts, window);
  expect_rule(std::vector<std::string>(20, texts[0] + "the same in all of them"), 50);
}

TEST(SubstringDedup, KeepsTheFirstOccurrenceOfALongSpan) {
  Numbers numbers(2);
  const std::string span = random_words(numbers, 60, 100000);
  const std::vector<std::string> texts = {"first " + span + " end", "Second, " + span + " and more", span,
                                          span + " " + span};
  StageStats stats;
  const auto outcomes = run_stage(*make_stage("substring_dedup"), texts, {}, &stats);
  EXPECT_EQ(outcomes[0], Outcome{});
  EXPECT_EQ(apply_outcomes(texts, outcomes)[1], "Second, and more");
  EXPECT_EQ(outcomes[2], (Outcome{true, "no_text_left"}));
  EXPECT_EQ(stats.counters().at("documents_changed"), 3);
}

TEST(SubstringDedup, DoesNotSplitCharactersOrWords) {
  const std::string cjk = "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C";  // four characters, no spaces
  EXPECT_EQ(whole_words(cjk, {1, 11}), (TextSpan{3, 9}));
  EXPECT_EQ(whole_words("one two three", {1, 10}), (TextSpan{4, 8}));
  EXPECT_EQ(whole_words("one two three", {0, 13}), (TextSpan{0, 13}));
  EXPECT_EQ(whole_words("one two three", {3, 7}), (TextSpan{4, 7}));
  EXPECT_EQ(whole_words("one two three", {4, 8}), (TextSpan{4, 8}));
  const std::string word(100, 'w');
  EXPECT_EQ(whole_words(word, {10, 90}), (TextSpan{10, 90}));
  EXPECT_EQ(whole_words("ab", {1, 1}), (TextSpan{1, 1}));
  const TextSpan inside = whole_words("\xE4\xBD\xA0", {1, 2});
  EXPECT_GE(inside.begin, inside.end);
}

// Every window has exactly one anchor, and equal windows have it at the same place.
TEST(Anchors, DependOnlyOnTheWindow) {
  Numbers numbers(3);
  for (const size_t window : {16u, 31u, 100u}) {
    AnchorFinder finder(window);
    std::map<std::string, std::pair<uint64_t, size_t>> seen;
    size_t windows = 0, runs_in_all = 0;
    for (int i = 0; i < 40; ++i) {
      const std::string text = i % 2 == 0 ? random_words(numbers, 120, 3) : random_words(numbers, 60, 100000);
      std::vector<AnchorRun> runs;
      finder.find(text, runs);
      size_t next = 0;
      for (const AnchorRun& run : runs) {
        EXPECT_EQ(run.begin, next);
        next += run.count;
        for (size_t j = 0; j < run.count; ++j) {
          ASSERT_GE(run.offset, j);
          const std::pair<uint64_t, size_t> anchor{run.hash, run.offset - j};
          const auto [found, is_new] = seen.emplace(text.substr(run.begin + j, window), anchor);
          ASSERT_EQ(found->second, anchor);
        }
      }
      EXPECT_EQ(next, text.size() < window ? 0 : text.size() - window + 1);
      windows += next;
      runs_in_all += runs.size();
    }
    EXPECT_LT(runs_in_all * window, 8 * windows);
  }
}

TEST(SubstringDedup, RejectsInvalidOptions) {
  EXPECT_THROW(make_stage("substring_dedup", {{"length_threshold", int64_t{8}}}), ConfigError);
  EXPECT_TRUE(run_stage(*make_stage("substring_dedup"), {}, {{0, 0}}).empty());
}

}  // namespace
}  // namespace strata::data::dedup
