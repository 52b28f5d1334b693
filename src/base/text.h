// Text as bytes: cuts UTF-8, and writes JSON by hand if a library would cost more than the work itself.
#pragma once

#include <string>
#include <string_view>

namespace strata {

// The beginning of a text, at most `bytes` long, that does not end inside a UTF-8 character. Bytes that are
// not UTF-8 are kept. Returns at least min(size, `bytes` - 3) bytes.
std::string_view utf8_prefix(std::string_view text, size_t bytes);

// Appends "text" with quotes, escaped as RFC 8259 asks for; bytes above 0x7f stay as they are (UTF-8).
void append_json_string(std::string& out, std::string_view text);
inline std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace strata
