// An HTTP response as a WARC record holds it: status line, header, body.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::data {

// Header lines "Name: value" in order; names in lower case, folded lines joined, values without blanks
// around.
using HeaderLines = std::vector<std::pair<std::string, std::string>>;
// The lines of `text` up to an empty line; `end` is set past it. False if there is no empty line, or if a
// line is not a header.
bool parse_header(std::string_view text, HeaderLines& lines, size_t& end);
std::string_view header_value(const HeaderLines& lines, std::string_view lower_case_name);  // empty: absent

struct HttpMessage {
  int status = 0;  // 200; 0 where the status line holds no number
  HeaderLines header;
  std::string body;  // as the server meant it: chunks joined, gzip undone
};

// Returns false, with the reason, if the block is not a response, or if the content coding of its body is
// unknown or damaged. A body that is declared chunked or gzip and is not was decoded before it was stored: it
// stays. `max_bytes` limits the body.
bool parse_http(std::string_view block, size_t max_bytes, HttpMessage& message, std::string& detail);

}  // namespace strata::data
