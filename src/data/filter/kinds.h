// The rows of filter_stage_kinds(), one a file, and what several of them share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/pipeline/stage_kinds.h"
#include "data/text/text_view.h"

namespace strata::data {

StageKind gopher_repetition_kind();
StageKind gopher_quality_kind();
StageKind c4_quality_kind();
StageKind fineweb_quality_kind();
StageKind simple_kind();
StageKind pii_kind();
StageKind normalize_kind();
StageKind language_kind();
StageKind url_blocklist_kind();
StageKind word_blocklist_kind();
StageKind fasttext_quality_kind();
StageKind line_corrections_kind();
StageKind decontaminate_kind();

// The parameter `words` of the filters that count words.
StageParameter words_parameter();
// ConfigError unless "whitespace" or "spacy".
WordRule word_rule(std::string_view kind, const StageParameters& parameters);

// A number that must not be negative (what 0 means is the filter's own), and one from 0 to 1. ConfigError.
double not_negative(std::string_view kind, const StageParameters& parameters, const std::string& name);
double fraction(std::string_view kind, const StageParameters& parameters, const std::string& name);

}  // namespace strata::data
