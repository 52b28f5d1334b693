// FineWeb's own filters (Penedo et al. 2024) with the thresholds of datatrove's code: char_duplicates_ratio
// is 0.1 in the paper, 0.01 in the code.
#include <algorithm>

#include "data/filter/kinds.h"
#include "data/filter/repetition.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "fineweb_quality";

enum Metric : size_t { kLinePunct, kShortLines, kCharDuplicates, kNewLines };

class FinewebQuality final : public DocumentStage {
 public:
  explicit FinewebQuality(const StageParameters& parameters)
      : rule_(word_rule(kKind, parameters)),
        line_punct_thr_(not_negative(kKind, parameters, "line_punct_thr")),
        line_punct_exclude_zero_(parameters.get<bool>("line_punct_exclude_zero")),
        short_line_thr_(not_negative(kKind, parameters, "short_line_thr")),
        short_line_length_(parameters.get<int64_t>("short_line_length")),
        char_duplicates_ratio_(not_negative(kKind, parameters, "char_duplicates_ratio")),
        new_line_ratio_(not_negative(kKind, parameters, "new_line_ratio")),
        stop_chars_(parameters.get<std::vector<std::string>>("stop_chars")) {}

  std::vector<MetricSpec> metrics() const override {
    return {{"line_punct_ratio", 0, 1, line_punct_thr_, true},
            {"short_line_ratio", 0, 1, short_line_thr_, false},
            {"char_dup_ratio", 0, 0.2, char_duplicates_ratio_, false},
            {"list_ratio", 0, 1, new_line_ratio_, false}};
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override;

 private:
  bool ends_with_stop(std::string_view line, const uint8_t* table) const {
    if (stop_chars_.empty()) {
      const Character last = decode_utf8_before(line.data(), line.data() + line.size());
      return (table[last.value] & kTerminalBit) != 0;
    }
    return std::any_of(stop_chars_.begin(), stop_chars_.end(),
                       [&](const std::string& stop) { return line.ends_with(stop); });
  }
  bool is_short(std::string_view line) const {
    const auto size = static_cast<int64_t>(line.size());
    if (size <= short_line_length_) return true;
    return size <= short_line_length_ * 4 && count_code_points(line) <= short_line_length_;
  }

  const WordRule rule_;
  const double line_punct_thr_;
  const bool line_punct_exclude_zero_;
  const double short_line_thr_;
  const int64_t short_line_length_;
  const double char_duplicates_ratio_, new_line_ratio_;
  const std::vector<std::string> stop_chars_;
};

std::string_view FinewebQuality::apply(TextView& text, const Document&, StageStats& stats) const {
  const uint8_t* table = character_table();
  auto& lines = text.scratch<std::vector<std::string_view>>();
  lines.clear();
  const auto all_lines = text.split_lines();
  int64_t punctuated = 0, short_lines = 0;
  for (const std::string_view line : all_lines) {
    if (strip_left(line).empty()) continue;
    lines.push_back(line);
    punctuated += ends_with_stop(line, table);
    short_lines += is_short(line);
  }
  if (lines.empty()) return "empty";
  const auto number = static_cast<double>(lines.size());
  const double punct_ratio = static_cast<double>(punctuated) / number;
  stats.record(kLinePunct, punct_ratio);
  if (punct_ratio < line_punct_thr_ && !(punctuated == 0 && line_punct_exclude_zero_))
    return "line_punct_ratio";
  const double short_ratio = static_cast<double>(short_lines) / number;
  stats.record(kShortLines, short_ratio);
  if (short_ratio > short_line_thr_) return "short_line_ratio";

  const auto new_lines = static_cast<int64_t>(all_lines.size()) - 1;
  const Duplicates duplicates = text.scratch<RepetitionCounter>().count_duplicates(lines);
  const double duplicate_ratio =
      static_cast<double>(duplicates.code_points) / static_cast<double>(text.code_points() - new_lines);
  stats.record(kCharDuplicates, duplicate_ratio);
  if (duplicate_ratio > char_duplicates_ratio_) return "char_dup_ratio";

  const double list_ratio = static_cast<double>(new_lines) / static_cast<double>(text.words(rule_).size());
  stats.record(kNewLines, list_ratio);
  if (list_ratio > new_line_ratio_) return "list_ratio";
  return {};
}

}  // namespace

StageKind fineweb_quality_kind() {
  return {
      .name = std::string(kKind),
      .help = "ends of lines, short and duplicate lines, lists (FineWeb, with the thresholds of its code)",
      .parameters =
          {
              {"line_punct_thr", 0.12, "least fraction of lines that end with a terminal punctuation mark"},
              {"line_punct_exclude_zero", false, "whether documents without any such line are kept"},
              {"stop_chars", std::vector<std::string>{}, "the marks; empty: datatrove's list"},
              {"short_line_thr", 0.67, "largest fraction of short lines"},
              {"short_line_length", int64_t{30}, "characters that a short line has at most"},
              {"char_duplicates_ratio", 0.01,
               "largest fraction of characters in duplicate lines (paper: 0.1)"},
              {"new_line_ratio", 0.3, "largest number of newlines per word"},
              words_parameter(),
          },
      .make = [](const StageParameters& parameters) -> AnyStage {
        return std::make_unique<FinewebQuality>(parameters);
      }};
}

}  // namespace strata::data
