#include "data/filter/kinds.h"

#include "base/error.h"

namespace strata::data {

StageParameter words_parameter() {
  return {"words", std::string("whitespace"),
          "how words are counted: \"whitespace\" as the Gopher paper, \"spacy\" as datatrove"};
}

WordRule word_rule(std::string_view kind, const StageParameters& parameters) {
  const auto& name = parameters.get<std::string>("words");
  if (name == "whitespace") return WordRule::kWhitespace;
  if (name == "spacy") return WordRule::kSpacy;
  throw ConfigError("[{}] words = \"{}\", expected \"whitespace\" or \"spacy\"", kind, name);
}

double not_negative(std::string_view kind, const StageParameters& parameters, const std::string& name) {
  const double value = parameters.get<double>(name);
  if (!(value >= 0)) throw ConfigError("[{}] {} = {}, expected 0 or more", kind, name, value);
  return value;
}

double fraction(std::string_view kind, const StageParameters& parameters, const std::string& name) {
  const double value = parameters.get<double>(name);
  if (!(value >= 0 && value <= 1)) throw ConfigError("[{}] {} = {}, expected 0 to 1", kind, name, value);
  return value;
}

std::vector<StageKind> filter_stage_kinds() {
  return {gopher_repetition_kind(), gopher_quality_kind(),   c4_quality_kind(),
          fineweb_quality_kind(),   simple_kind(),           pii_kind(),
          normalize_kind(),         language_kind(),         url_blocklist_kind(),
          word_blocklist_kind(),    fasttext_quality_kind(), line_corrections_kind(),
          decontaminate_kind()};
}

}  // namespace strata::data
