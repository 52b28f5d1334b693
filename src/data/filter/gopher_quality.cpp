// Gopher's quality filter (Rae et al. 2021, A.1.1) as datatrove runs it.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/filter/kinds.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "gopher_quality";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";
constexpr std::string_view kBullet = "\xE2\x80\xA2";

enum Metric : size_t {
  kWords,
  kWordLength,
  kHashes,
  kEllipses,
  kBulletLines,
  kEllipsisLines,
  kAlphaWords,
  kStopWords,
};

int64_t count_of(std::string_view text, std::string_view needle) {
  int64_t n = 0;
  for (size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size()))
    ++n;
  return n;
}

// Whether an ellipsis of either kind may be in [at, at + n). Reads 2 bytes beyond. Written so that compilers
// use vectors.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
bool block_may_have_ellipsis(const uint8_t* at, size_t n) {
  uint8_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint8_t a = at[i], b = at[i + 1], c = at[i + 2];
    found |= static_cast<uint8_t>(((a == '.') & (b == '.') & (c == '.')) |
                                  ((a == 0xE2) & (b == 0x80) & (c == 0xA6)));
  }
  return found != 0;
}

int64_t count_ellipses(std::string_view text) {
  constexpr size_t kBlock = 4096;
  if (text.size() < kEllipsis.size()) return 0;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  const size_t places = text.size() - 2;
  for (size_t at = 0; at < places; at += kBlock) {
    if (!block_may_have_ellipsis(bytes + at, std::min(kBlock, places - at))) continue;
    return count_of(text, "...") + count_of(text, kEllipsis);
  }
  return 0;
}

int64_t count_hashes(std::string_view text) {
  int64_t n = 0;
  for (size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1)) ++n;
  return n;
}

class GopherQuality final : public DocumentStage {
 public:
  explicit GopherQuality(const StageParameters& parameters)
      : rule_(word_rule(kKind, parameters)),
        min_doc_words_(not_negative(kKind, parameters, "min_doc_words")),
        max_doc_words_(not_negative(kKind, parameters, "max_doc_words")),
        min_word_length_(not_negative(kKind, parameters, "min_avg_word_length")),
        max_word_length_(not_negative(kKind, parameters, "max_avg_word_length")),
        max_symbols_(not_negative(kKind, parameters, "max_symbol_word_ratio")),
        max_bullets_(not_negative(kKind, parameters, "max_bullet_lines_ratio")),
        max_ellipses_(not_negative(kKind, parameters, "max_ellipsis_lines_ratio")),
        min_alpha_(fraction(kKind, parameters, "max_non_alpha_words_ratio")),
        min_stop_words_(static_cast<size_t>(not_negative_integer(parameters))),
        stop_words_(parameters.get<std::vector<std::string>>("stop_words")) {
    std::sort(stop_words_.begin(), stop_words_.end());
    stop_words_.erase(std::unique(stop_words_.begin(), stop_words_.end()), stop_words_.end());
    if (stop_words_.size() > 64)
      throw ConfigError("[{}] {} stop_words, expected at most 64", kKind, stop_words_.size());
    for (const std::string& word : stop_words_)
      if (!word.empty()) starts_ |= uint64_t{1} << start_of(word);
  }

  std::vector<MetricSpec> metrics() const override {
    return {{"min_doc_words", 0, 1000, min_doc_words_, true},
            {"avg_word_length", 0, 15, min_word_length_, true},
            {"hashes_per_word", 0, 0.5, max_symbols_, false},
            {"ellipses_per_word", 0, 0.5, max_symbols_, false},
            {"max_bullet_lines_ratio", 0, 1, max_bullets_, false},
            {"max_ellipsis_lines_ratio", 0, 1, max_ellipses_, false},
            {"max_non_alpha_words_ratio", 0, 1, min_alpha_, true},
            {"min_stop_words", 0, 10, static_cast<double>(min_stop_words_), true}};
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override;

 private:
  static int64_t not_negative_integer(const StageParameters& parameters) {
    const int64_t value = parameters.get<int64_t>("min_stop_words");
    if (value < 0) throw ConfigError("[{}] min_stop_words = {}, expected 0 or more", kKind, value);
    return value;
  }
  static uint32_t start_of(std::string_view word) {
    return (static_cast<uint8_t>(word[0]) * 5u + static_cast<uint32_t>(word.size()) * 11u) & 63;
  }
  // How many distinct ones there are.
  size_t stop_words_in(std::span<const Word> words) const;

  const WordRule rule_;
  // 0: not tested
  const double min_doc_words_, max_doc_words_, min_word_length_, max_word_length_, max_symbols_, max_bullets_,
      max_ellipses_, min_alpha_;
  const size_t min_stop_words_;
  std::vector<std::string> stop_words_;
  uint64_t starts_ = 0;  // bits of start_of for all stop words: few other words have the same
};

size_t GopherQuality::stop_words_in(std::span<const Word> words) const {
  uint64_t seen = 0;
  const size_t enough = std::max<size_t>(min_stop_words_, stop_words_.size());
  size_t found = 0;
  for (const Word& word : words) {
    if ((starts_ >> start_of(word.bytes) & 1) == 0) continue;
    for (size_t i = 0; i < stop_words_.size(); ++i) {
      if (word.bytes != stop_words_[i]) continue;
      found += (seen >> i & 1) == 0;
      seen |= uint64_t{1} << i;
      break;
    }
    if (found >= enough) break;
  }
  return found;
}

std::string_view GopherQuality::apply(TextView& text, const Document&, StageStats& stats) const {
  const std::span<const Word> words = text.words(rule_);
  int64_t plain_words = 0, plain_length = 0, alpha_words = 0;
  for (const Word& word : words) {
    plain_words += !word.symbol;
    plain_length += word.symbol ? 0 : word.code_points;
    alpha_words += word.alpha;
  }
  const auto number = static_cast<double>(plain_words);
  stats.record(kWords, number);
  if (min_doc_words_ > 0 && number < min_doc_words_) return "gopher_short_doc";
  if (max_doc_words_ > 0 && number > max_doc_words_) return "gopher_long_doc";
  // NaN, and so never beyond a limit, if there is no word.
  const double mean = static_cast<double>(plain_length) / number;
  stats.record(kWordLength, mean);
  if (min_word_length_ > 0 && mean < min_word_length_) return "gopher_below_avg_threshold";
  if (max_word_length_ > 0 && mean > max_word_length_) return "gopher_above_avg_threshold";

  const auto all_words = static_cast<double>(words.size());
  const auto per = [](double value, double of) { return of > 0 ? value / of : 0.0; };
  const std::string_view bytes = text.bytes();
  const double hashes = per(static_cast<double>(count_hashes(bytes)), all_words);
  stats.record(kHashes, hashes);
  if (max_symbols_ > 0 && hashes > max_symbols_) return "gopher_too_many_hashes";
  const int64_t ellipses = count_ellipses(bytes);
  const double ellipsis_ratio = per(static_cast<double>(ellipses), all_words);
  stats.record(kEllipses, ellipsis_ratio);
  if (max_symbols_ > 0 && ellipsis_ratio > max_symbols_) return "gopher_too_many_ellipsis";

  int64_t bullets = 0, ends = 0;
  const auto lines = text.python_lines();
  for (const std::string_view line : lines) {
    const std::string_view left = strip_left(line);
    bullets += left.starts_with(kBullet) || left.starts_with('-');
    if (ellipses > 0) {
      const std::string_view right = strip_right(line);
      ends += right.ends_with("...") || right.ends_with(kEllipsis);
    }
  }
  const auto line_number = static_cast<double>(lines.size());
  const double bullet_ratio = per(static_cast<double>(bullets), line_number);
  stats.record(kBulletLines, bullet_ratio);
  if (max_bullets_ > 0 && bullet_ratio > max_bullets_) return "gopher_too_many_bullets";
  const double end_ratio = per(static_cast<double>(ends), line_number);
  stats.record(kEllipsisLines, end_ratio);
  if (max_ellipses_ > 0 && end_ratio > max_ellipses_) return "gopher_too_many_end_ellipsis";

  const double alpha_ratio = per(static_cast<double>(alpha_words), all_words);
  stats.record(kAlphaWords, alpha_ratio);
  if (min_alpha_ > 0 && alpha_ratio < min_alpha_) return "gopher_below_alpha_threshold";
  const size_t stop_words = stop_words_in(words);
  stats.record(kStopWords, static_cast<double>(stop_words));
  if (stop_words < min_stop_words_) return "gopher_enough_stop_words";
  return {};
}

}  // namespace

StageKind gopher_quality_kind() {
  using Strings = std::vector<std::string>;
  return {.name = std::string(kKind),
          .help = "number and length of words, symbols, bullets, stop words (Gopher, as datatrove)",
          .parameters =
              {
                  {"min_doc_words", 50.0, "least number of words that are not symbols; 0: not tested"},
                  {"max_doc_words", 100000.0, "largest number of them"},
                  {"min_avg_word_length", 3.0, "least mean length of these words"},
                  {"max_avg_word_length", 10.0, "largest mean length"},
                  {"max_symbol_word_ratio", 0.1, "largest number of # per word, and of ellipses"},
                  {"max_bullet_lines_ratio", 0.9, "largest fraction of lines that start with a bullet"},
                  {"max_ellipsis_lines_ratio", 0.3, "largest fraction of lines that end with an ellipsis"},
                  {"max_non_alpha_words_ratio", 0.8,
                   "least fraction of words with a letter (the published name misleads)"},
                  {"min_stop_words", int64_t{2}, "least number of different stop words"},
                  {"stop_words", Strings{"the", "be", "to", "of", "and", "that", "have", "with"},
                   "the stop words, as they are written"},
                  words_parameter(),
              },
          .make = [](const StageParameters& parameters) -> AnyStage {
            return std::make_unique<GopherQuality>(parameters);
          }};
}

}  // namespace strata::data
