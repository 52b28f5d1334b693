// Decodes a growing list of tokens incrementally: returns only complete characters, and no text that may be
// the beginning of a stop text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace strata::inference {

class TextStream {
 public:
  // Empty stop texts never stop anything. `tokenizer` must outlive this object.
  TextStream(const data::Tokenizer& tokenizer, std::vector<std::string> stops);

  // Adds a token and returns the text that can be shown now. Nothing follows a stop text.
  std::string push(int32_t id);
  // Returns the held-back text after the last token; invalid UTF-8 becomes U+FFFD, here and in push.
  std::string finish();

  bool stopped() const { return stopped_; }
  const std::string& text() const { return shown_; }  // the text returned so far

 private:
  std::string take(size_t bytes);  // of held-back text
  std::string until_stop();

  const data::Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int32_t> recent_;  // context in which newer tokens are decoded
  size_t recent_bytes_ = 0;      // size of their text
  std::string held_;
  std::string shown_;
  bool stopped_ = false;
};

}  // namespace strata::inference
