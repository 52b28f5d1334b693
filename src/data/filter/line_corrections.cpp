// Line-wise corrections as RefinedWeb describes them (Penedo et al. 2023, G.2): lines that are mostly upper
// case, numbers, counters or single words go, short lines with phrases of navigation go or lose these; a
// document that loses too many words is dropped. Lines of symbols only go too, as datatrove offers it.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/filter/kinds.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "line_corrections";

constexpr std::array<std::string_view, 10> kAtStart = {
    "sign-in",         "sign in", "sign up",   "log in",   "login",
    "skip to content", "jump to", "subscribe", "register", "menu"};
constexpr std::array<std::string_view, 8> kAtEnd = {"read more...",     "read more…", "read more",
                                                    "continue reading", "learn more", "click here",
                                                    "see more",         "show more"};
constexpr std::array<std::string_view, 5> kAnywhere = {"items in cart", "item in cart", "your cart is empty",
                                                       "all rights reserved", "add to cart"};
constexpr std::array<std::string_view, 12> kCounted = {"like",    "likes",    "share",    "shares",
                                                       "comment", "comments", "view",     "views",
                                                       "reply",   "replies",  "follower", "followers"};
constexpr size_t kShortLine = 10;  // words

struct Scratch {
  std::string text, lowered;
};

bool is_number(std::string_view word) {
  bool digit = false;
  for (const char c : word) {
    if (c >= '0' && c <= '9') {
      digit = true;
    } else if (std::string_view(".,:/%+-()#$").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return digit;
}

class LineCorrections final : public DocumentStage {
 public:
  explicit LineCorrections(const StageParameters& parameters)
      : max_removed_(fraction(kKind, parameters, "max_removed_word_fraction")),
        max_upper_(fraction(kKind, parameters, "max_uppercase_fraction")),
        numeric_(parameters.get<bool>("remove_numeric_lines")),
        counters_(parameters.get<bool>("remove_counter_lines")),
        single_(parameters.get<bool>("remove_one_word_lines")),
        navigation_(parameters.get<bool>("correct_navigation")),
        symbols_(parameters.get<bool>("remove_symbol_lines")) {}

  std::vector<MetricSpec> metrics() const override {
    return {{"max_removed_word_fraction", 0, 0.5, max_removed_, false}};
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override;

 private:
  enum class Defect { kNone, kUpper, kNumeric, kCounter, kOneWord, kSymbols, kNavigation };
  Defect defect_of(std::string_view line, std::span<const Word> words) const;
  // The line without phrases of navigation, stripped; the line itself if it has none.
  std::string_view without_navigation(std::string_view line, std::string& lowered) const;

  const double max_removed_, max_upper_;
  const bool numeric_, counters_, single_, navigation_, symbols_;
};

LineCorrections::Defect LineCorrections::defect_of(std::string_view line, std::span<const Word> words) const {
  if (words.empty()) return Defect::kNone;
  if (symbols_ && std::all_of(words.begin(), words.end(), [](const Word& word) { return word.symbol; }))
    return Defect::kSymbols;
  if (numeric_ &&
      std::all_of(words.begin(), words.end(), [](const Word& word) { return is_number(word.bytes); }))
    return Defect::kNumeric;
  if (single_ && words.size() == 1) return Defect::kOneWord;
  if (counters_ && words.size() == 2 && is_number(words[0].bytes)) {
    std::string unit(words[1].bytes);
    for (char& c : unit) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    if (std::find(kCounted.begin(), kCounted.end(), unit) != kCounted.end()) return Defect::kCounter;
  }
  if (max_upper_ < 1) {
    int64_t upper = 0, letters = 0;
    for (const char c : line) {
      upper += c >= 'A' && c <= 'Z';
      letters += (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    }
    if (letters > 0 && static_cast<double>(upper) / static_cast<double>(letters) > max_upper_)
      return Defect::kUpper;
  }
  return Defect::kNone;
}

std::string_view LineCorrections::without_navigation(std::string_view line, std::string& lowered) const {
  line = strip(line);
  lower(line, lowered);
  // Lower case may have another length; then nothing is cut.
  if (lowered.size() != line.size()) return line;
  const std::string_view low = lowered;
  for (const std::string_view phrase : kAnywhere) {
    if (low.find(phrase) != std::string_view::npos) return {};
  }
  for (const std::string_view phrase : kAtStart) {
    const bool whole_word =
        low.size() == phrase.size() ||
        !(character_table()[static_cast<uint8_t>(low[std::min(phrase.size(), low.size() - 1)])] & kAlphaBit);
    if (low.starts_with(phrase) && whole_word) return strip(line.substr(phrase.size()));
  }
  for (const std::string_view phrase : kAtEnd) {
    if (low.ends_with(phrase)) return strip(line.substr(0, line.size() - phrase.size()));
  }
  return line;
}

std::string_view LineCorrections::apply(TextView& text, const Document&, StageStats& stats) const {
  Scratch& scratch = text.scratch<Scratch>();
  const std::span<const Word> words = text.words(WordRule::kWhitespace);
  const Word* word = words.data();
  const Word* const last = word + words.size();
  scratch.text.clear();
  std::array<int64_t, 7> defects{};
  int64_t removed_words = 0;
  bool first_line = true;
  for (const std::string_view line : text.split_lines()) {
    const Word* const first = word;
    while (word < last && word->bytes.data() < line.data() + line.size()) ++word;
    const std::span<const Word> of_line(first, static_cast<size_t>(word - first));
    Defect defect = defect_of(line, of_line);
    std::string_view kept = defect == Defect::kNone ? line : std::string_view();
    if (defect == Defect::kNone && navigation_ && !of_line.empty() && of_line.size() <= kShortLine) {
      const std::string_view rest = without_navigation(line, scratch.lowered);
      if (rest.size() != strip(line).size()) {
        defect = Defect::kNavigation;
        kept = rest;
      }
    }
    if (defect != Defect::kNone) {
      ++defects[static_cast<size_t>(defect)];
      removed_words += static_cast<int64_t>(of_line.size());
      if (kept.empty()) continue;
    }
    if (!first_line) scratch.text += '\n';
    scratch.text += kept;
    first_line = false;
  }
  const double removed =
      words.empty() ? 0 : static_cast<double>(removed_words) / static_cast<double>(words.size());
  stats.record(0, removed);
  constexpr std::array<std::string_view, 7> kNames = {"",
                                                      "lines_uppercase",
                                                      "lines_numeric",
                                                      "lines_counter",
                                                      "lines_one_word",
                                                      "lines_symbols",
                                                      "lines_navigation"};
  for (size_t i = 1; i < defects.size(); ++i) {
    if (defects[i] > 0) stats.count(kNames[i], defects[i]);
  }
  if (removed > max_removed_) return "too_many_corrections";
  if (removed_words == 0) return {};
  text.replace(scratch.text);
  return strip_left(text.bytes()).empty() ? "empty" : std::string_view();
}

}  // namespace

StageKind line_corrections_kind() {
  return {
      .name = std::string(kKind),
      .help = "removes or cuts lines of navigation, numbers, counters, capitals, symbols (as RefinedWeb)",
      .parameters =
          {
              {"max_removed_word_fraction", 0.05,
               "a document is dropped above this fraction of words in such lines"},
              {"max_uppercase_fraction", 0.5, "a line goes above this fraction of capitals; 1: not tested"},
              {"remove_numeric_lines", true, "whether lines of numbers go"},
              {"remove_counter_lines", true, "whether lines such as \"3 likes\" go"},
              {"remove_one_word_lines", true, "whether lines of one word go"},
              {"correct_navigation", true,
               "whether short lines lose \"sign-in\", \"read more\" and the like"},
              {"remove_symbol_lines", true, "whether lines of punctuation go"},
          },
      .make = [](const StageParameters& parameters) -> AnyStage {
        return std::make_unique<LineCorrections>(parameters);
      }};
}

}  // namespace strata::data
