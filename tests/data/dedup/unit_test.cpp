// Compares deduplication of lines and paragraphs with a list of earlier ones.
#include <set>

#include "base/error.h"
#include "data/dedup/corpus.h"
#include "data/dedup/unit_dedup.h"

namespace strata::data::dedup {
namespace {

const std::map<std::string, StageValue> kKeepAll = {{"min_doc_words", int64_t{0}},
                                                    {"min_doc_lines", int64_t{0}}};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t at = 0;
  while (true) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    if (end == std::string::npos) return lines;
    at = end + 1;
  }
}

bool blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) text += (i > 0 ? "\n" : "") + lines[i];
  return text;
}

// Texts of lines from a small set, some blank, some in capitals, some without a newline at the end.
std::vector<std::string> random_texts(uint64_t seed, size_t count) {
  Numbers numbers(seed);
  std::vector<std::string> texts;
  for (size_t i = 0; i < count; ++i) {
    std::string text;
    for (uint32_t line = numbers.below(8); line > 0; --line) {
      switch (numbers.below(6)) {
        case 0:
          text += "  \n";
          break;
        case 1:
          text += " Line " + std::to_string(numbers.below(200)) + "\n";
          break;
        default:
          text += "line " + std::to_string(numbers.below(200)) + "\n";
      }
    }
    if (numbers.below(2) == 0 && !text.empty()) text.pop_back();
    texts.push_back(text);
  }
  return texts;
}

TEST(LineDedup, EqualsAListOfSeenLines) {
  const auto texts = random_texts(1, 150);
  std::set<std::string> seen;
  std::vector<std::string> expected;
  size_t dropped = 0;
  for (const std::string& text : texts) {
    std::vector<std::string> kept;
    bool changed = false, left = false;
    for (const std::string& line : lines_of(text)) {
      std::string key = line.substr(std::min(line.size(), line.find_first_not_of(' ')));
      if (!key.empty() && key[0] == 'L') key[0] = 'l';
      const bool known = !blank(line) && !seen.insert(key).second;
      changed |= known;
      left |= !known && !blank(line);
      if (!known) kept.push_back(line);
    }
    if (changed && !left) {
      ++dropped;
    } else {
      expected.push_back(joined(kept));
    }
  }
  EXPECT_GT(dropped, 5u);
  const auto stage = make_stage("line_dedup", kKeepAll);
  for (const auto& parts : ways_to_cut(texts.size())) {
    for (const int64_t memory : {int64_t{0}, int64_t{1} << 30}) {
      const auto outcomes = run_stage(*stage, texts, {parts, memory});
      EXPECT_EQ(apply_outcomes(texts, outcomes), expected);
      for (const Outcome& o : outcomes) EXPECT_TRUE(!o.drop || o.reason == "no_text_left");
    }
  }
}

TEST(LineDedup, DropsDocumentsThatBecomeTooShort) {
  const std::vector<std::string> texts = {"menu home\ncontact us",
                                          "menu home\nfive words are in here\nand three more",
                                          "menu home\nshort", "tiny", "Menu Home \n\n contact us"};
  StageStats stats;
  const auto outcomes =
      run_stage(*make_stage("line_dedup", {{"min_doc_words", int64_t{4}}, {"min_doc_lines", int64_t{2}}}),
                texts, {}, &stats);
  EXPECT_EQ(outcomes[0], Outcome{});
  EXPECT_EQ(outcomes[1], (Outcome{false, "", -1, {{0, 10}}}));
  EXPECT_EQ(outcomes[2], (Outcome{true, "too_few_words"}));
  EXPECT_EQ(outcomes[3], Outcome{});
  EXPECT_EQ(outcomes[4], (Outcome{true, "no_text_left"}));
  EXPECT_EQ(stats.counters().at("lines_removed"), 4);
  EXPECT_EQ(stats.counters().at("documents_changed"), 3);
  const auto by_lines = run_stage(*make_stage("line_dedup", {{"min_doc_words", int64_t{1}}}), texts);
  EXPECT_EQ(by_lines[1], (Outcome{true, "too_few_lines"}));
}

TEST(LineDedup, ShortLinesMayRepeat) {
  auto set = kKeepAll;
  set["min_line_words"] = int64_t{3};
  const std::vector<std::string> texts = {"yes\nthis is long", "yes\nthis is long\nno"};
  EXPECT_EQ(apply_outcomes(texts, run_stage(*make_stage("line_dedup", set), texts)),
            (std::vector<std::string>{"yes\nthis is long", "yes\nno"}));
}

TEST(ParagraphDedup, CutsParagraphsWithTheirSeparators) {
  const std::vector<std::string> texts = {"One\ntwo.\n\nThree.\n", "Three.\n\nfour\n \n\none\nTwo.",
                                          "\n\nthree.\n\n\nfive.\n", "three.", "six\n\nONE\ntwo.\n\n\nFour"};
  const auto stage =
      make_stage("paragraph_dedup", {{"min_doc_words", int64_t{0}}, {"min_doc_paragraphs", int64_t{0}}});
  for (const auto& parts : ways_to_cut(texts.size())) {
    const auto outcomes = run_stage(*stage, texts, {parts, 0});
    EXPECT_EQ(apply_outcomes(texts, outcomes),
              (std::vector<std::string>{"One\ntwo.\n\nThree.\n", "four", "\n\nfive.\n", "six"}));
    EXPECT_EQ(outcomes[3], (Outcome{true, "no_text_left"}));
  }
}

TEST(ParagraphDedup, ComparesSimplifiedText) {
  const std::vector<std::string> texts = {"Hello, world!\n\n***", "hello world\n\n***\n\nx"};
  const auto outcomes = run_stage(*make_stage("paragraph_dedup", {{"min_doc_words", int64_t{0}},
                                                                  {"min_doc_paragraphs", int64_t{0}},
                                                                  {"compare", std::string("simplified")}}),
                                  texts);
  EXPECT_EQ(apply_outcomes(texts, outcomes), (std::vector<std::string>{texts[0], "***\n\nx"}));
}

// Extents ascend, and together with the gaps between them they cover the text.
TEST(Units, ExtentsAreInTheText) {
  std::vector<Unit> units;
  for (const std::string& text : random_texts(3, 300)) {
    for (const UnitKind kind : {UnitKind::kLine, UnitKind::kParagraph}) {
      split_units(text, kind, units);
      uint32_t begin = 0;
      for (const Unit& unit : units) {
        EXPECT_GE(unit.extent.begin, begin);
        EXPECT_LT(unit.extent.begin, unit.extent.end);
        EXPECT_LE(unit.extent.end, text.size());
        EXPECT_FALSE(blank(std::string(unit.text)));
        begin = unit.extent.begin;
      }
    }
  }
}

}  // namespace
}  // namespace strata::data::dedup
