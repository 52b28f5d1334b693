// Decisions, reasons and rewritten texts equal datatrove's (tools/golden/make_filters.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "base/hash.h"
#include "base/json.h"
#include "data/filter/make_stage.h"

namespace strata::data {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;
using Values = std::map<std::string, StageValue>;

struct Case {
  std::string kind;
  Values values;
};

const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> all = {
      {"gopher_repetition", {"gopher_repetition", {}}},
      {"gopher_quality", {"gopher_quality", {}}},
      {"gopher_quality_long",
       {"gopher_quality",
        {{"max_doc_words", 60.0},
         {"min_doc_words", 1.0},
         {"min_stop_words", int64_t{3}},
         {"stop_words", Strings{"the", "of", "sea", "The", "Σ"}}}}},
      {"c4_quality", {"c4_quality", {}}},
      {"c4_quality_fineweb", {"c4_quality", {{"filter_no_terminal_punct", false}}}},
      {"c4_quality_open",
       {"c4_quality",
        {{"min_num_sentences", int64_t{-1}},
         {"min_words_per_line", int64_t{-1}},
         {"max_word_length", int64_t{12}},
         {"remove_citations", false},
         {"filter_curly_bracket", false},
         {"filter_lorem_ipsum", false}}}},
      {"c4_quality_sentences",
       {"c4_quality", {{"split_paragraph", false}, {"min_num_sentences", int64_t{2}}}}},
      {"fineweb_quality", {"fineweb_quality", {}}},
      {"fineweb_quality_zero",
       {"fineweb_quality",
        {{"line_punct_exclude_zero", true},
         {"short_line_length", int64_t{12}},
         {"char_duplicates_ratio", 0.1},
         {"stop_chars", Strings{"!", "..", "»"}}}}}};
  return all;
}

TEST(Filters, AgreeWithDatatrove) {
  std::map<std::string, std::unique_ptr<DocumentStage>> stages;
  for (const auto& [name, one] : cases()) {
    for (const std::string words : {"spacy", "whitespace"}) {
      Values values = one.values;
      values["words"] = words;
      stages[words + name] = make_stage(one.kind, values);
    }
  }
  std::ifstream file(STRATA_TEST_DATA "/filter/decisions.jsonl");
  // One view for all texts and stages, as in a build; a new view must yield the same.
  TextView shared;
  std::map<std::string, int> seen;
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const Json record = parse_json<Json>(line);
    const std::string text = record["text"];
    for (const std::string words : {"spacy", "whitespace"}) {
      for (const auto& [name, expected] : record[words].items()) {
        SCOPED_TRACE(words + " " + name + " line " + std::to_string(lines + 1) + " " +
                     dump_json(record["text"]).substr(0, 300));
        const DocumentStage& stage = *stages.at(words + name);
        StageStats stats(stage.metrics());
        std::string copy = text;
        shared.reset(copy);
        const std::string reason(stage.apply(shared, {}, stats));
        const std::string after(shared.bytes());
        EXPECT_EQ(reason, expected.is_string() ? expected.get<std::string>() : "");
        if (expected.is_object()) {
          EXPECT_EQ(to_hex(hash64(after)), expected.value("xxh3", to_hex(hash64(text)))) << after;
        }
        if (lines % 8 == 0) {
          EXPECT_EQ(apply_stage(stage, text), (Outcome{reason, after}));
        }
        ++seen[name + " " + reason];
      }
    }
  }
  EXPECT_EQ(lines, 283);
  EXPECT_EQ(seen.size(), 59u);  // every reason of every filter
}

// Consecutive stages see the result of the first one, with words and lines computed again if it rewrote the
// text.
TEST(Filters, InARow) {
  const auto c4 = make_stage("c4_quality", {{"filter_no_terminal_punct", false}});
  const auto fineweb = make_stage("fineweb_quality");
  std::string text = "One two three four five. Six seven.\nshort\nEight [1] nine ten. Eleven twelve? Yes!";
  TextView view;
  view.reset(text);
  EXPECT_EQ(view.split_lines().size(), 3u);
  EXPECT_EQ(view.words(WordRule::kWhitespace).size(), 15u);
  StageStats stats(c4->metrics());
  EXPECT_EQ(c4->apply(view, {}, stats), "");
  EXPECT_EQ(view.bytes(), "One two three four five. Six seven.\nEight  nine ten. Eleven twelve? Yes!");
  EXPECT_EQ(view.words(WordRule::kWhitespace).size(), 13u);
  EXPECT_EQ(stats.counters().at("lines_too_few_words"), 1);
  EXPECT_EQ(stats.counters().at("lines_kept"), 2);
  StageStats other(fineweb->metrics());
  EXPECT_EQ(fineweb->apply(view, {}, other), "");
}

}  // namespace
}  // namespace strata::data
