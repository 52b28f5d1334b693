// Writing JSON text by hand, where a library would cost more than the work itself.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

// Appends "text" with quotes, escaped as RFC 8259 asks for; bytes above 0x7f stay as they are (UTF-8).
void append_json_string(std::string& out, std::string_view text);

}  // namespace strata::data
