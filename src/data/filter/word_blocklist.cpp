// C4's bad words filter as datatrove runs it, over the recipe's list. Whether a document with bad words is
// kept by chance depends on its text and the seed, not on the order of documents.
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "data/filter/kinds.h"
#include "data/filter/languages.h"
#include "data/filter/list_file.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "word_blocklist";
constexpr std::string_view kReason = "document_removed_with_badwords";

// \w of Python's re: letters, numbers of every kind and the underscore. Latin and enclosed numbers are
// listed, those of other scripts are decimal digits or letters.
bool is_word(uint32_t c) {
  if (character_table()[c] & (kAlphaBit | kDecimalBit)) return true;
  return c == '_' || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE) || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2150 && c <= 0x218B) ||
         (c >= 0x2460 && c <= 0x249B) || (c >= 0x24EA && c <= 0x24FF) || (c >= 0x2776 && c <= 0x2793) ||
         c == 0x3007 || (c >= 0x3021 && c <= 0x3029);
}

struct Scratch {
  std::string lowered;
};

class WordBlocklist final : public DocumentStage {
 public:
  explicit WordBlocklist(const StageParameters& parameters)
      : keep_fraction_(fraction(kKind, parameters, "keep_fraction")),
        seed_(static_cast<uint64_t>(parameters.get<int64_t>("seed"))) {
    const auto& language = parameters.get<std::string>("default_language");
    check_language(kKind, "default_language", language, cld2_languages());
    borders_ = language != "ja" && language != "th" && language != "zh";
    const auto entries = list_entries(parameters, "banned_words", "words_file");
    if (entries.empty()) throw ConfigError("[{}] found no words; give banned_words or words_file", kKind);
    for (const std::string& entry : entries) {
      std::string word;
      lower(entry, word);
      if (!word.empty()) words_[start_of(word)].push_back(std::move(word));
    }
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override {
    std::string& lowered = text.scratch<Scratch>().lowered;
    lower(text.bytes(), lowered);
    if (!holds_word(lowered)) return {};
    stats.count("documents_with_badwords");
    if (keep_fraction_ > 0) {
      const double place = static_cast<double>(hash64(text.bytes(), seed_) >> 11) * 0x1p-53;
      if (place < keep_fraction_) {
        stats.count("document_kept_with_badwords");
        return {};
      }
    }
    return kReason;
  }

 private:
  // One or two bytes, by which words are found.
  static uint32_t start_of(std::string_view word) {
    const auto byte = [word](size_t i) { return uint32_t{static_cast<uint8_t>(word[i])}; };
    return word.size() < 2 ? byte(0) : byte(0) << 8 | byte(1) | 0x10000;
  }

  bool ends_at(std::string_view text, size_t at) const {
    return !borders_ || at == text.size() ||
           !is_word(decode_utf8(text.data() + at, text.data() + text.size()).value);
  }

  bool holds_word(std::string_view text) const {
    bool border = true;  // no word character before
    const char* end = text.data() + text.size();
    for (const char* at = text.data(); at < end;) {
      const auto rest = text.substr(static_cast<size_t>(at - text.data()));
      if (border || !borders_) {
        for (const uint32_t start : {start_of(rest), start_of(rest.substr(0, 1))}) {
          const auto found = words_.find(start);
          if (found == words_.end()) continue;
          for (const std::string& word : found->second) {
            if (rest.starts_with(word) && ends_at(rest, word.size())) return true;
          }
        }
      }
      const Character c = decode_utf8(at, end);
      border = !is_word(c.value);
      at += c.size;
    }
    return false;
  }

  const double keep_fraction_;
  const uint64_t seed_;
  bool borders_ = true;
  std::unordered_map<uint32_t, std::vector<std::string>> words_;
};

}  // namespace

StageKind word_blocklist_kind() {
  return {
      .name = std::string(kKind),
      .help = "drops documents that hold a word of a list (C4's bad words, as datatrove)",
      .parameters =
          {
              {"banned_words", std::vector<std::string>{}, "the words; case plays no part"},
              {"words_file", std::string(), "a file with more of them, one a line"},
              {"default_language", std::string("en"), "ja, th and zh: words are found inside of others too"},
              {"keep_fraction", 0.0, "fraction of such documents that is kept all the same"},
              {"seed", int64_t{0}, "decides which"},
          },
      .make = [](const StageParameters& parameters) -> AnyStage {
        return std::make_unique<WordBlocklist>(parameters);
      }};
}

}  // namespace strata::data
