// The few tests that pipelines for a first model start with: length, word length, symbols, letters.
#include "base/error.h"
#include "data/filter/kinds.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "simple";

enum Metric : size_t { kLength, kWordLength, kSymbols, kAlpha };

class Simple final : public DocumentStage {
 public:
  explicit Simple(const StageParameters& parameters)
      : rule_(word_rule(kKind, parameters)),
        min_length_(not_negative(kKind, parameters, "min_length")),
        max_length_(not_negative(kKind, parameters, "max_length")),
        min_mean_(not_negative(kKind, parameters, "min_mean_word_length")),
        max_mean_(not_negative(kKind, parameters, "max_mean_word_length")),
        max_symbols_(not_negative(kKind, parameters, "max_symbol_ratio")),
        min_alpha_(fraction(kKind, parameters, "min_alpha_ratio")) {}

  std::vector<MetricSpec> metrics() const override {
    return {{"min_length", 0, 10000, min_length_, true},
            {"mean_word_length", 0, 15, min_mean_, true},
            {"max_symbol_ratio", 0, 1, max_symbols_, false},
            {"min_alpha_ratio", 0, 1, min_alpha_, true}};
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override;

 private:
  const WordRule rule_;
  const double min_length_, max_length_, min_mean_, max_mean_, max_symbols_, min_alpha_;
};

std::string_view Simple::apply(TextView& text, const Document&, StageStats& stats) const {
  const auto length = static_cast<double>(text.code_points());
  stats.record(kLength, length);
  if (length < min_length_) return "too_short";
  if (max_length_ > 0 && length > max_length_) return "too_long";
  const std::span<const Word> words = text.words(rule_);
  if (words.empty()) return "empty";
  int64_t letters = 0;
  for (const Word& word : words) letters += word.code_points;
  const double mean = static_cast<double>(letters) / static_cast<double>(words.size());
  stats.record(kWordLength, mean);
  if (mean < min_mean_ || (max_mean_ > 0 && mean > max_mean_)) return "mean_word_length";

  const uint8_t* table = character_table();
  int64_t symbols = 0, alpha = 0;
  const std::string_view bytes = text.bytes();
  const char* end = bytes.data() + bytes.size();
  for (const char* at = bytes.data(); at < end;) {
    const Character c = decode_utf8(at, end);
    const uint8_t bits = table[c.value];
    alpha += (bits & kAlphaBit) != 0;
    symbols += (bits & (kAlphaBit | kDecimalBit | kSpaceBit | kNonspacingBit)) == 0;
    at += c.size;
  }
  const double symbol_ratio = static_cast<double>(symbols) / length;
  stats.record(kSymbols, symbol_ratio);
  if (max_symbols_ > 0 && symbol_ratio > max_symbols_) return "symbol_ratio";
  const double alpha_ratio = static_cast<double>(alpha) / length;
  stats.record(kAlpha, alpha_ratio);
  if (alpha_ratio < min_alpha_) return "alpha_ratio";
  return {};
}

}  // namespace

StageKind simple_kind() {
  return {
      .name = std::string(kKind),
      .help = "length, mean word length, symbols and letters of a document",
      .parameters =
          {
              {"min_length", 100.0, "least number of characters"},
              {"max_length", 0.0, "largest number of characters; 0: not tested"},
              {"min_mean_word_length", 3.0, "least mean length of words"},
              {"max_mean_word_length", 10.0, "largest mean length of words; 0: not tested"},
              {"max_symbol_ratio", 0.25,
               "largest fraction of characters other than letters, digits and white space; 0: not tested"},
              {"min_alpha_ratio", 0.6, "least fraction of characters that are letters"},
              words_parameter(),
          },
      .make = [](const StageParameters& parameters) -> AnyStage {
        return std::make_unique<Simple>(parameters);
      }};
}

}  // namespace strata::data
