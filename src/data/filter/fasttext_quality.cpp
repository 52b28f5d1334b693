// datatrove's fastText classifier filter, on whole documents.
#include <algorithm>

#include "base/error.h"
#include "data/filter/fasttext_model.h"
#include "data/filter/kinds.h"
#include "data/filter/list_file.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "fasttext_quality";
using Strings = std::vector<std::string>;

class FasttextQuality final : public DocumentStage {
 public:
  explicit FasttextQuality(const StageParameters& parameters)
      : model_(model_of(parameters)),
        keep_(labelled_numbers(kKind, "keep_labels", parameters.get<Strings>("keep_labels"))),
        remove_(labelled_numbers(kKind, "remove_labels", parameters.get<Strings>("remove_labels"))),
        newline_(parameters.get<std::string>("newline_replacement")) {
    if (keep_.empty() == remove_.empty())
      throw ConfigError("[{}] give either keep_labels or remove_labels", kKind);
    for (const auto* labels : {&keep_, &remove_}) {
      for (const auto& [label, score] : *labels) {
        if (std::find(model_.labels().begin(), model_.labels().end(), label) == model_.labels().end()) {
          throw ConfigError("[{}] the model has no label \"{}\"; it has {}{}", kKind, label,
                            model_.labels().front(), model_.labels().size() > 1 ? " and others" : "");
        }
      }
    }
    if (newline_.find('\n') != std::string::npos)
      throw ConfigError("[{}] newline_replacement holds a newline", kKind);
  }

  std::vector<MetricSpec> metrics() const override {
    std::vector<MetricSpec> out;
    for (const auto& [label, score] : keep_) out.push_back({label, 0, 1, score, true});
    for (const auto& [label, score] : remove_) out.push_back({label, 0, 1, score, false});
    return out;
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override {
    std::string line;
    for (const char c : strip(text.bytes())) {
      if (c == '\n') {
        line += newline_;
      } else {
        line += c;
      }
    }
    if (line.empty()) return "empty";
    const auto scores = model_.predict(line);
    const auto reaches = [&](const std::pair<std::string, double>& limit) {
      const auto found = std::find_if(scores.begin(), scores.end(),
                                      [&](const auto& score) { return score.first == limit.first; });
      return found != scores.end() && found->second >= limit.second;
    };
    size_t metric = 0;
    for (const auto* labels : {&keep_, &remove_}) {
      for (const auto& limit : *labels) {
        for (const auto& [label, score] : scores) {
          if (label == limit.first) stats.record(metric, score);
        }
        ++metric;
      }
    }
    const bool kept = keep_.empty() ? std::none_of(remove_.begin(), remove_.end(), reaches)
                                    : std::any_of(keep_.begin(), keep_.end(), reaches);
    return kept ? std::string_view() : "fasttext_quality";
  }

 private:
  static FasttextModel model_of(const StageParameters& parameters) {
    const auto& model = parameters.get<std::string>("model");
    if (model.empty()) throw ConfigError("[{}] model is not set; give the path of a fastText model", kKind);
    return FasttextModel(recipe_path(parameters, model));
  }

  const FasttextModel model_;
  const std::vector<std::pair<std::string, double>> keep_, remove_;
  const std::string newline_;
};

}  // namespace

StageKind fasttext_quality_kind() {
  return {
      .name = std::string(kKind),
      .help = "keeps or drops documents by the labels of a fastText classifier (as datatrove)",
      .parameters =
          {
              {"model", std::string(), "the model file"},
              {"keep_labels", Strings{}, "LABEL:SCORE, a document is kept where one reaches its score"},
              {"remove_labels", Strings{}, "LABEL:SCORE, a document is dropped where one reaches its score"},
              {"newline_replacement", std::string(), "replacement of newlines for the classifier"},
          },
      .make = [](const StageParameters& parameters) -> AnyStage {
        return std::make_unique<FasttextQuality>(parameters);
      }};
}

}  // namespace strata::data
