// The part of a byte stream that a reader looks at: it slides along and grows to the longest record only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/input/byte_stream.h"

namespace strata::data {

class InputWindow {
 public:
  // Readable bytes after data(): zeros at the end of the input, the following input elsewhere.
  static constexpr size_t kPadding = 64;

  explicit InputWindow(ByteStream stream);

  // Bytes that were read and not consumed. Valid until fill().
  std::string_view data() const { return {buffer_.get() + begin_, end_ - begin_}; }
  void consume(size_t count) { begin_ += count; }
  // Reads more after the present bytes; false at the end of the input. Damaged compression counts as the end
  // and is reported by damage(): all bytes before it are available.
  bool fill();
  bool ended() const { return ended_; }
  const std::string& damage() const { return damage_; }  // empty: none

  int64_t stored_bytes() const { return stream_.stored_bytes(); }
  uint64_t content_hash() const { return stream_.content_hash(); }

 private:
  ByteStream stream_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_;  // without the padding
  size_t begin_ = 0;
  size_t end_ = 0;
  bool ended_ = false;
  std::string damage_;
};

}  // namespace strata::data
