// The normalizer of a tokenizer.json: steps that rewrite a text before it is split.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/split.h"

namespace strata::data {

struct UnicodeForm {
  bool compose = true;
  bool compatibility = false;  // NFC: {true, false}, NFD: {false, false}, NFKC: {true, true}, NFKD
};
struct LowercaseStep {};
struct StripStep {
  bool left = true;
  bool right = true;
};
struct PrependStep {
  std::string text;
};
struct ReplaceStep {
  Pattern pattern;
  std::string content;
};
struct StripAccentsStep {};
struct NmtStep {};    // control characters go, odd spaces become spaces
struct BertStep {     // the parts of BertNormalizer, in this order
  bool clean = true;  // control characters go, white space becomes spaces
  bool space_ideographs = true;
  bool strip_accents = true;
  bool lowercase = true;
};
// A SentencePiece charsmap as the Hugging Face library applies it: grapheme by grapheme.
struct PrecompiledStep {
  Charsmap map;
};
// The normalizer of a SentencePiece model as its own library applies it.
struct SentencePieceStep {
  Charsmap map;
  ByteTrie symbols;  // the user's: they are not changed
  bool add_space = true;
  bool space_after = false;  // add_space appends the space
  bool remove_extra_spaces = true;
  bool escape_spaces = true;  // a space is written U+2581
};
using NormalizerStep = std::variant<UnicodeForm, LowercaseStep, StripStep, PrependStep, ReplaceStep,
                                    StripAccentsStep, NmtStep, BertStep, PrecompiledStep, SentencePieceStep>;

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  static Normalizer nfc();

  bool empty() const { return steps_.empty(); }
  bool is_nfc() const;  // that and nothing else

  // The normalized text: `text` itself if nothing changes, else a view of `storage`. Bytes that are not UTF-8
  // are unchanged, but for SentencePiece, for which each becomes U+FFFD.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace strata::data
