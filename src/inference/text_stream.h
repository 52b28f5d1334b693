// The text of a growing list of tokens, piece by piece: only whole characters, and nothing that a stop text
// could still begin with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace strata::inference {

class TextStream {
 public:
  // Empty stop texts never stop anything. `tokenizer` must outlive the stream.
  TextStream(const data::Tokenizer& tokenizer, std::vector<std::string> stops);

  // Takes one more token and gives what may be shown now. Behind a stop text nothing follows any more.
  std::string push(int32_t id);
  // What was held back, once no token follows; bytes that are no UTF-8 become U+FFFD, here and in push.
  std::string finish();

  bool stopped() const { return stopped_; }
  const std::string& text() const { return shown_; }  // all that was given so far

 private:
  std::string take(size_t bytes);  // of what is held back
  std::string until_stop();

  const data::Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int32_t> recent_;  // tokens that newer ones are decoded behind
  size_t recent_bytes_ = 0;      // what they decode to
  std::string held_;
  std::string shown_;
  bool stopped_ = false;
};

}  // namespace strata::inference
