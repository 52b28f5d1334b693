#include "data/filter/languages.h"

#include <cstdio>  // the next one uses FILE

#include <cld2/public/compact_lang_det.h>

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"

namespace strata::data {

const std::vector<std::string>& cld2_languages() {
  static const std::vector<std::string> kCodes = [] {
    std::vector<std::string> codes;
    for (int i = 0; i < CLD2::NUM_LANGUAGES; ++i) {
      const std::string code = CLD2::LanguageCode(static_cast<CLD2::Language>(i));
      // "un" is unknown, "xx-…" a script without a language, "zzb" and the like are jokes.
      if (code.empty() || code == "un" || code.starts_with("xx") || code.starts_with("zz")) continue;
      codes.push_back(code);
    }
    std::sort(codes.begin(), codes.end());
    codes.erase(std::unique(codes.begin(), codes.end()), codes.end());
    return codes;
  }();
  return kCodes;
}

void check_language(std::string_view kind, std::string_view parameter, const std::string& code,
                    std::span<const std::string> known) {
  if (std::find(known.begin(), known.end(), code) != known.end()) return;
  const auto near = nearest_name(code, known);
  constexpr size_t kListed = 20;
  throw ConfigError("[{}] {}: found \"{}\", which is not a known language{}; expected {}", kind, parameter,
                    code, near ? fmt::format(", perhaps \"{}\"", *near) : "",
                    known.size() <= kListed ? fmt::format("one of {}", fmt::join(known, ", "))
                                            : "a code of ISO 639 in lower case, such as en, de or zh");
}

}  // namespace strata::data
