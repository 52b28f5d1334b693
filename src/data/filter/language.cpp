// Language identification: CLD2, or a fastText model such as lid.176, whose decision is datatrove's.
#include <cstdio>  // the next one uses FILE

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "data/filter/fasttext_model.h"
#include "data/filter/kinds.h"
#include "data/filter/languages.h"
#include "data/filter/list_file.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "language";
constexpr size_t kMostBytes = size_t{1} << 30;  // CLD2 counts in int

using Scores = std::vector<std::pair<std::string, double>>;  // largest first

struct Scratch {
  std::string line;
};

Scores cld2_scores(std::string_view text) {
  CLD2::CLDHints hints = {nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
  CLD2::Language languages[3];
  int percents[3];
  double normalized[3];
  int text_bytes = 0;
  bool reliable = false;
  CLD2::ExtDetectLanguageSummary(text.data(), static_cast<int>(std::min(text.size(), kMostBytes)), true,
                                 &hints, 0, languages, percents, normalized, nullptr, &text_bytes, &reliable);
  Scores out;
  for (int i = 0; i < 3; ++i) {
    if (languages[i] != CLD2::UNKNOWN_LANGUAGE && percents[i] > 0)
      out.emplace_back(CLD2::LanguageCode(languages[i]), percents[i] / 100.0);
  }
  return out;
}

class Language final : public DocumentStage {
 public:
  explicit Language(const StageParameters& parameters)
      : languages_(parameters.get<std::vector<std::string>>("languages")),
        threshold_(fraction(kKind, parameters, "language_threshold")),
        label_only_(parameters.get<bool>("label_only")) {
    const auto& model = parameters.get<std::string>("model");
    if (!model.empty()) model_.emplace(recipe_path(parameters, model));
    for (const std::string& language : languages_)
      check_language(kKind, "languages", language, model_ ? model_->labels() : cld2_languages());
  }

  std::vector<MetricSpec> metrics() const override {
    return {{"language_threshold", 0, 1, threshold_, true}};
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override {
    const Scores scores = model_ ? model_scores(text) : cld2_scores(text.bytes());
    stats.count(scores.empty() ? "language_unknown" : "language_" + scores.front().first);
    double score = scores.empty() ? 0 : scores.front().second;
    if (!languages_.empty()) {
      score = 0;
      for (const auto& [language, of_language] : scores) {
        if (std::find(languages_.begin(), languages_.end(), language) != languages_.end())
          score = std::max(score, of_language);
      }
    }
    stats.record(0, score);
    return label_only_ || score > threshold_ ? std::string_view() : "language";
  }

 private:
  Scores model_scores(TextView& text) const {
    std::string& line = text.scratch<Scratch>().line;
    line.assign(text.bytes());
    std::replace(line.begin(), line.end(), '\n', ' ');
    return model_->predict(line);
  }

  const std::vector<std::string> languages_;
  const double threshold_;
  const bool label_only_;
  std::optional<FasttextModel> model_;
};

}  // namespace

StageKind language_kind() {
  return {.name = std::string(kKind),
          .help = "keeps documents in some languages, by CLD2 or a fastText model (lid.176 as FineWeb)",
          .parameters =
              {
                  {"languages", std::vector<std::string>{"en"}, "codes of the languages to keep; none: all"},
                  {"language_threshold", 0.65, "a document is kept above this score of its language"},
                  {"model", std::string(),
                   "a fastText model file; empty: CLD2, whose score is a fraction of the text"},
                  {"label_only", false, "whether languages are only counted and nothing is dropped"},
              },
          .make = [](const StageParameters& parameters) -> AnyStage {
            return std::make_unique<Language>(parameters);
          }};
}

}  // namespace strata::data
