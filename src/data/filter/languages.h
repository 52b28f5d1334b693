// Codes of languages, as recipes give them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

// The languages that CLD2 recognizes, sorted: ISO 639 codes, zh and zh-Hant.
const std::vector<std::string>& cld2_languages();

// ConfigError with the nearest one where `known` does not hold `code`.
void check_language(std::string_view kind, std::string_view parameter, const std::string& code,
                    std::span<const std::string> known);

}  // namespace strata::data
