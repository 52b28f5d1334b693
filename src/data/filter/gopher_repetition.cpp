// Gopher's repetition filter (Rae et al. 2021, table A1) as datatrove runs it.
#include <array>
#include <charconv>

#include "base/error.h"
#include "data/filter/kinds.h"
#include "data/filter/repetition.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "gopher_repetition";

// Reasons are literals, since they outlive the stage.
constexpr std::array<std::string_view, 17> kTopReasons = {"",
                                                          "top_1_gram",
                                                          "top_2_gram",
                                                          "top_3_gram",
                                                          "top_4_gram",
                                                          "top_5_gram",
                                                          "top_6_gram",
                                                          "top_7_gram",
                                                          "top_8_gram",
                                                          "top_9_gram",
                                                          "top_10_gram",
                                                          "top_11_gram",
                                                          "top_12_gram",
                                                          "top_13_gram",
                                                          "top_14_gram",
                                                          "top_15_gram",
                                                          "top_16_gram"};
constexpr std::array<std::string_view, 17> kDuplicatedReasons = {"",
                                                                 "duplicated_1_n_grams",
                                                                 "duplicated_2_n_grams",
                                                                 "duplicated_3_n_grams",
                                                                 "duplicated_4_n_grams",
                                                                 "duplicated_5_n_grams",
                                                                 "duplicated_6_n_grams",
                                                                 "duplicated_7_n_grams",
                                                                 "duplicated_8_n_grams",
                                                                 "duplicated_9_n_grams",
                                                                 "duplicated_10_n_grams",
                                                                 "duplicated_11_n_grams",
                                                                 "duplicated_12_n_grams",
                                                                 "duplicated_13_n_grams",
                                                                 "duplicated_14_n_grams",
                                                                 "duplicated_15_n_grams",
                                                                 "duplicated_16_n_grams"};
constexpr int kLongestGram = 16;

struct GramLimit {
  int n = 0;
  double fraction = 0;
};

// "N:FRACTION" entries, n rising.
std::vector<GramLimit> gram_limits(const StageParameters& parameters, const std::string& name) {
  std::vector<GramLimit> out;
  for (const std::string& entry : parameters.get<std::vector<std::string>>(name)) {
    GramLimit limit;
    const char* end = entry.data() + entry.size();
    const auto n = std::from_chars(entry.data(), end, limit.n);
    bool good = n.ec == std::errc() && n.ptr != end && *n.ptr == ':';
    if (good) {
      const auto value = std::from_chars(n.ptr + 1, end, limit.fraction);
      good = value.ec == std::errc() && value.ptr == end && limit.fraction >= 0;
    }
    if (!good || limit.n < 1 || limit.n > kLongestGram || (!out.empty() && out.back().n >= limit.n)) {
      throw ConfigError("[{}] {}: found \"{}\", expected \"N:FRACTION\" with N from 1 to {}, rising", kKind,
                        name, entry, kLongestGram);
    }
    out.push_back(limit);
  }
  return out;
}

// The results of split(strip(text), /\n{2,}/).
void split_paragraphs(std::string_view text, std::vector<std::string_view>& out) {
  text = strip(text);
  out.clear();
  while (true) {
    const size_t end = text.find("\n\n");
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(text.find_first_not_of('\n', end));
  }
}

// The results of split(text, /\n+/): a newline at an end leaves an empty string there.
void join_newlines(std::span<const std::string_view> lines, std::vector<std::string_view>& out) {
  out.clear();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].empty() || i == 0 || i + 1 == lines.size()) out.push_back(lines[i]);
  }
}

class GopherRepetition final : public DocumentStage {
 public:
  explicit GopherRepetition(const StageParameters& parameters)
      : rule_(word_rule(kKind, parameters)),
        dup_line_frac_(not_negative(kKind, parameters, "dup_line_frac")),
        dup_para_frac_(not_negative(kKind, parameters, "dup_para_frac")),
        dup_line_char_frac_(not_negative(kKind, parameters, "dup_line_char_frac")),
        dup_para_char_frac_(not_negative(kKind, parameters, "dup_para_char_frac")),
        top_(gram_limits(parameters, "top_n_grams")),
        duplicated_(gram_limits(parameters, "dup_n_grams")) {}

  std::vector<MetricSpec> metrics() const override {
    std::vector<MetricSpec> out = {{"dup_para_frac", 0, 1, dup_para_frac_, false},
                                   {"dup_para_char_frac", 0, 1, dup_para_char_frac_, false},
                                   {"dup_line_frac", 0, 1, dup_line_frac_, false},
                                   {"dup_line_char_frac", 0, 1, dup_line_char_frac_, false}};
    for (const GramLimit& limit : top_)
      out.push_back({std::string(kTopReasons[static_cast<size_t>(limit.n)]), 0, 0.5, limit.fraction, false});
    for (const GramLimit& limit : duplicated_) {
      out.push_back(
          {std::string(kDuplicatedReasons[static_cast<size_t>(limit.n)]), 0, 0.5, limit.fraction, false});
    }
    return out;
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override;

 private:
  const WordRule rule_;
  const double dup_line_frac_, dup_para_frac_, dup_line_char_frac_, dup_para_char_frac_;  // 0: not tested
  const std::vector<GramLimit> top_, duplicated_;
};

std::string_view GopherRepetition::apply(TextView& text, const Document&, StageStats& stats) const {
  if (text.bytes().empty()) return "empty";
  const auto length = static_cast<double>(text.code_points());
  RepetitionCounter& counter = text.scratch<RepetitionCounter>();
  auto& pieces = text.scratch<std::vector<std::string_view>>();
  size_t metric = 0;
  const auto above = [&](double value, double limit) {
    stats.record(metric++, value);
    return value > limit;
  };
  const auto too_many = [&](const Duplicates& duplicates, double items, double chars) {
    const double of_items = static_cast<double>(duplicates.items) / static_cast<double>(pieces.size());
    const double of_chars = static_cast<double>(duplicates.code_points) / length;
    const bool many = above(of_items, items) && items > 0;
    if (many) return 1;
    return above(of_chars, chars) && chars > 0 ? 2 : 0;
  };

  split_paragraphs(text.bytes(), pieces);
  switch (too_many(counter.count_duplicates(pieces), dup_para_frac_, dup_para_char_frac_)) {
    case 1:
      return "dup_para_frac";
    case 2:
      return "dup_para_char_frac";
  }
  join_newlines(text.split_lines(), pieces);
  switch (too_many(counter.count_duplicates(pieces), dup_line_frac_, dup_line_char_frac_)) {
    case 1:
      return "dup_line_frac";
    case 2:
      return "dup_line_char_frac";
  }
  counter.set_words(text.words(rule_));
  for (const GramLimit& limit : top_) {
    const auto n = static_cast<size_t>(limit.n);
    if (above(static_cast<double>(counter.top_n_gram(n)) / length, limit.fraction)) return kTopReasons[n];
  }
  for (const GramLimit& limit : duplicated_) {
    const auto n = static_cast<size_t>(limit.n);
    if (above(static_cast<double>(counter.duplicated_n_grams(n)) / length, limit.fraction))
      return kDuplicatedReasons[n];
  }
  return {};
}

}  // namespace

StageKind gopher_repetition_kind() {
  using Strings = std::vector<std::string>;
  return {.name = std::string(kKind),
          .help = "repeated lines, paragraphs and n-grams (Gopher, table A1, as datatrove)",
          .parameters =
              {
                  {"dup_line_frac", 0.3, "largest fraction of lines that are duplicates; 0: not tested"},
                  {"dup_para_frac", 0.3, "the same of paragraphs"},
                  {"dup_line_char_frac", 0.2, "largest fraction of characters in duplicate lines"},
                  {"dup_para_char_frac", 0.2, "the same in paragraphs"},
                  {"top_n_grams", Strings{"2:0.2", "3:0.18", "4:0.16"},
                   "N:FRACTION, largest fraction of characters in the most frequent n-gram"},
                  {"dup_n_grams", Strings{"5:0.15", "6:0.14", "7:0.13", "8:0.12", "9:0.11", "10:0.10"},
                   "N:FRACTION, largest fraction of characters in n-grams that came before"},
                  words_parameter(),
              },
          .make = [](const StageParameters& parameters) -> AnyStage {
            return std::make_unique<GopherRepetition>(parameters);
          }};
}

}  // namespace strata::data
