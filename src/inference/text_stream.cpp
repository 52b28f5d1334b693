#include "inference/text_stream.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace strata::inference {
namespace {

// Context for decoding, which may depend on earlier tokens (spaces, split characters), but on no more than
// these.
constexpr size_t kContext = 4;
constexpr size_t kMostRecent = 64;

// The number of bytes at the end that may begin a character.
size_t open_character(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;  // within a character
    const size_t whole = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return whole > back ? back : 0;
  }
  return 0;
}

// The longest proper prefix of `stop` at the end of `text`.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (stop.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(const data::Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  std::erase(stops_, std::string());
}

std::string TextStream::take(size_t bytes) {
  std::string piece = data::replace_invalid_utf8(std::string_view(held_).substr(0, bytes));
  held_.erase(0, bytes);
  shown_ += piece;
  return piece;
}

std::string TextStream::until_stop() {
  size_t first = held_.npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first == held_.npos) return {};
  stopped_ = true;
  std::string piece = take(first);
  held_.clear();
  return piece;
}

std::string TextStream::push(int32_t id) {
  if (stopped_) return {};
  recent_.push_back(id);
  const std::string text = tokenizer_.decode(recent_);
  held_ += text.substr(std::min(text.size(), recent_bytes_));
  recent_bytes_ = text.size();
  if (recent_.size() > kMostRecent && open_character(text) == 0) {
    recent_.erase(recent_.begin(), recent_.end() - kContext);
    recent_bytes_ = tokenizer_.decode(recent_).size();
  }
  if (std::string piece = until_stop(); stopped_) return piece;
  size_t hold = open_character(held_);
  for (const std::string& stop : stops_) hold = std::max(hold, begun(held_, stop));
  return take(held_.size() - hold);
}

std::string TextStream::finish() {
  return stopped_ ? std::string() : take(held_.size());
}

}  // namespace strata::inference
