// The normalizer of a tokenizer.json: steps that rewrite a text before it is split.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

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
using NormalizerStep = std::variant<UnicodeForm, LowercaseStep, StripStep, PrependStep, ReplaceStep>;

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  static Normalizer nfc();

  bool empty() const { return steps_.empty(); }

  // The normalized text: `text` itself where nothing changes, else a view of `storage`. Bytes that are not
  // UTF-8 stay as they are.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace strata::data
